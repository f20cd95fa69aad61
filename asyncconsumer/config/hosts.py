"""The hosts to which a client may connect.

They are restricted because addresses in broker responses may be forged.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from asyncconsumer.errors import ConfigError

# A name whose last part is a number would be an address in an unusual form.
_NAME: Final = re.compile(r"(\*\.)?([a-z0-9_-]+\.)*(?!\d+\.?$)[a-z0-9_-]+\.?", re.IGNORECASE)


class Hosts(NamedTuple):
    """A set of host names, domains and networks."""

    names: frozenset[str]
    endings: tuple[str, ...]
    networks: tuple[IPv4Network | IPv6Network, ...]

    def contains(self, host: str) -> bool:
        """Return whether `host` is in the set. A name is not resolved to addresses."""
        try:
            address = ip_address(host)
        except ValueError:
            name = _plain(host)
            return name in self.names or name.endswith(self.endings)
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.networks)


def parse_hosts(option: str, value: object) -> Hosts:
    """Parse the hosts in the value of `option`.

    The value may name hosts, addresses, networks, and ``*.example.com`` for all names in a domain.
    """
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, Sequence) or not entries:
        raise ConfigError(f"`{option}` must name hosts of brokers, or be None, got {value!r}")
    names, endings, networks = set(), [], []
    for entry in entries:
        text = entry.strip() if isinstance(entry, str) else ""
        try:
            networks.append(ip_network(text))
            continue
        except ValueError as error:
            if _NAME.fullmatch(text) is None:
                raise ConfigError(
                    f"`{option}` has {entry!r}: each entry must be a name, '*.example.com', an "
                    "address or a network like '10.0.0.0/8', without a port"
                ) from error
        if text.startswith("*"):
            endings.append(_plain(text[1:]))
        else:
            names.add(_plain(text))
    return Hosts(frozenset(names), tuple(endings), tuple(networks))


def _plain(name: str) -> str:
    return name.lower().rstrip(".")
