"""The brokers and topics as brokers register them in ZooKeeper.

Any client with access may have written to the znodes. An invalid znode is skipped and reported.
Unknown keys and versions are accepted.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from asyncconsumer.errors import BadZnode, NoNode
from asyncconsumer.types import Address
from asyncconsumer.zookeeper import paths
from asyncconsumer.zookeeper.session import ZooKeeperSession

K = TypeVar("K")
V = TypeVar("V")

_MAX_BROKER_BYTES: Final = 64 * 2**10
_MAX_TOPIC_BYTES: Final = 2**20
_ENDPOINT: Final = re.compile(r"([\w.-]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/@\s]*)):([0-9]{1,5})")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")


class BrokerEndpoint(NamedTuple):
    """A listener of a broker, with its name, security protocol and address."""

    listener: str
    security_protocol: str
    address: Address


class RegisteredBroker(NamedTuple):
    """A live broker that is registered in ZooKeeper."""

    id: int
    endpoints: tuple[BrokerEndpoint, ...]

    def address(self, security_protocol: str = "PLAINTEXT") -> Address | None:
        """Return the broker's address for a security protocol, or None without such a listener."""
        for endpoint in self.endpoints:
            if endpoint.security_protocol == security_protocol:
                return endpoint.address
        return None


@dataclass(frozen=True, slots=True)
class RegistryReader(Generic[K, V]):
    """The contents of valid znodes (`nodes`), and the errors of those that were skipped (`bad`)."""

    nodes: dict[K, V]
    bad: tuple[BadZnode, ...] = ()


async def read_brokers(session: ZooKeeperSession) -> RegistryReader[int, RegisteredBroker]:
    """Return the live brokers by broker id, and the invalid registrations."""
    try:
        names = await session.children(paths.BROKER_IDS)
    except NoNode:
        return RegistryReader({})
    return await _read(session, paths.BROKER_IDS, names, parse_broker)


async def read_addresses(session: ZooKeeperSession, security_protocol: str) -> list[Address]:
    """Return the addresses of live brokers for a security protocol."""
    brokers = (await read_brokers(session)).nodes.values()
    addresses = (broker.address(security_protocol) for broker in brokers)
    return [address for address in addresses if address is not None]


async def read_topics(
    session: ZooKeeperSession, names: Iterable[str] | None = None
) -> RegistryReader[str, tuple[int, ...]]:
    """Return the partitions of each topic in `names`, or of all topics without `names`.

    Topics that do not exist are left out.
    """
    if names is None:
        try:
            names = await session.children(paths.TOPICS)
        except NoNode:
            return RegistryReader({})
    return await _read(session, paths.TOPICS, list(names), parse_topic)


async def _read(
    session: ZooKeeperSession,
    parent: str,
    names: Sequence[str],
    parse: Callable[[str, bytes | None], tuple[K, V]],
) -> RegistryReader[K, V]:
    nodes: dict[K, V] = {}
    bad: list[BadZnode] = []
    sound = []
    for name in sorted(names):
        if paths.is_legal(name):
            sound.append(f"{parent}/{name}")
        else:
            bad.append(BadZnode(f"{parent}/{name[:100]!r}", "Kafka does not allow this name"))
    for path, node in zip(sound, await session.get_many(sound), strict=True):
        if node is None:
            continue  # the znode was deleted meanwhile
        try:
            key, value = parse(path, node.data)
            nodes[key] = value
        except BadZnode as error:
            bad.append(error)
    return RegistryReader(nodes, tuple(bad))


def parse_broker(path: str, data: bytes | None) -> tuple[int, RegisteredBroker]:
    """Parse the registration of a broker, of any version. Return its id and the broker."""
    name = path.rpartition("/")[2]
    if not _is_number(name):
        raise BadZnode(path, "the broker id is not a number")
    fields = parse_object(path, data, _MAX_BROKER_BYTES)
    endpoints, trouble = _endpoints(fields)
    if not endpoints:
        raise BadZnode(path, trouble)
    return int(name), RegisteredBroker(int(name), endpoints)


def parse_topic(path: str, data: bytes | None) -> tuple[str, tuple[int, ...]]:
    """Parse the znode of a topic. Return the topic's name and its sorted partition numbers."""
    partitions = parse_object(path, data, _MAX_TOPIC_BYTES).get("partitions")
    if not isinstance(partitions, dict):
        raise BadZnode(path, "it has no object of partitions")
    for number in partitions:
        if not _is_number(number):
            raise BadZnode(path, f"{number[:40]!r} is not a partition")
    return path.rpartition("/")[2], tuple(sorted(map(int, partitions)))


def parse_object(path: str, data: bytes | None, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in a znode.

    Raise BadZnode if it is invalid or larger than `max_bytes`.
    """
    text = decode_text(path, data, max_bytes)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadZnode(path, f"it is not JSON: {text.encode()[:40]!r}") from None
    if not isinstance(value, dict):
        raise BadZnode(path, f"it is not a JSON object but a {type(value).__name__}")
    return value


def decode_text(path: str, data: bytes | None, max_bytes: int) -> str:
    """Return the text in a znode. Raise BadZnode if it is invalid or larger than `max_bytes`."""
    if not data:
        raise BadZnode(path, "it is empty")
    if len(data) > max_bytes:
        raise BadZnode(path, f"it has {len(data)} bytes, which is more than {max_bytes}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadZnode(path, "it is not UTF-8") from None


def _endpoints(fields: dict[str, Any]) -> tuple[tuple[BrokerEndpoint, ...], str]:
    """Return the valid listeners of a broker, and the reason if there are none.

    The reason is empty if there is a listener.
    """
    protocols = fields.get("listener_security_protocol_map")
    listed = fields.get("endpoints")
    texts = listed if isinstance(listed, list) else ()
    read = [_endpoint(text, protocols if isinstance(protocols, dict) else {}) for text in texts]
    endpoints = tuple(endpoint for endpoint in read if endpoint is not None)
    if endpoints:
        return endpoints, ""
    host, port = fields.get("host"), fields.get("port")  # the only address in the first versions
    if _is_host(host) and _is_port(port):
        return (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", Address(str(host), int(str(port)))),), ""
    if texts:
        return (), f"{str(texts[0])[:80]!r} is not a valid endpoint"
    return (), f"host {str(host)[:80]!r} and port {str(port)[:20]!r} are not valid"


def _endpoint(text: object, protocols: dict[str, Any]) -> BrokerEndpoint | None:
    match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    listener, host, port = match[1], match[2] or match[3], int(match[4])
    protocol = protocols.get(listener, listener)  # in the first versions the name is the protocol
    if not (_is_host(host) and _is_port(port) and isinstance(protocol, str)):
        return None
    return BrokerEndpoint(listener, protocol, Address(host, port))


def _is_host(host: object) -> bool:
    return (
        isinstance(host, str)
        and 0 < len(host) <= 255
        and host.isprintable()
        and not any(c in "/@[] " for c in host)
    )


def _is_port(port: object) -> bool:
    return isinstance(port, int) and not isinstance(port, bool) and 0 < port < 2**16


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text) < 2**31
