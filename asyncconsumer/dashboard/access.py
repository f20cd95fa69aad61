"""Access to the dashboard: allowed host names, and the token that permits changes."""

import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from asyncconsumer.errors import ConfigError

TOKEN_VARIABLE: Final = "ASYNCCONSUMER_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable
_SHORTEST_TOKEN: Final = 16
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

HttpHeaders = Mapping[str, str]
"""The headers of a request, with names in lower case."""


class HostCheck:
    """The host names by which browsers may reach the dashboard: loopback, and configured ones.

    Without this check, a page of another site could reach a local server through a DNS name that
    resolves to this machine. ``*`` allows all names.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = _LOOPBACK | {name.lower() for name in allowed}

    def accepts(self, headers: HttpHeaders) -> bool:
        """Return whether the Host header has an allowed name."""
        return "*" in self._allowed or _without_port(headers.get("host", "")) in self._allowed


class TokenCheck:
    """The token that permits changes. Without a token, no change is permitted."""

    def __init__(self, token: str | None) -> None:
        if token is not None and len(token) < _SHORTEST_TOKEN:
            raise ConfigError(
                f"The dashboard token has {len(token)} characters. Set a random one with at least "
                f"{_SHORTEST_TOKEN}, such as the output of `openssl rand -hex 16`."
            )
        self._token = None if token is None else token.encode()

    @property
    def is_set(self) -> bool:
        """Whether there is a token, so that changes are possible."""
        return self._token is not None

    def accepts(self, headers: HttpHeaders) -> bool:
        """Return whether the Authorization header has the token, compared in constant time.

        Browsers do not send this header on their own, so pages of other sites cannot forge a
        request.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._token is None or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(token.strip().encode(), self._token)


def is_same_origin(headers: HttpHeaders) -> bool:
    """Return False if a request comes from a page of another site, otherwise True."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def read_token(file: Path | None = None) -> str | None:
    """Return the token in a file or in the environment, or None.

    The token is never an argument of a command, because other users can see command lines.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"The token file {file} cannot be read: {error.strerror}.") from None
    if not token:
        raise ConfigError(f"The token file {file} is empty. Write a random token to it.")
    return token


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
