"""A token provider that caches its token and renews it before it expires."""

import logging
import threading
import time
from abc import abstractmethod
from typing import Final, NamedTuple

from asyncconsumer.aio.threads import call_in_daemon_thread
from asyncconsumer.aiokafka_parts import AbstractTokenProvider
from asyncconsumer.errors import ConsumerError

_log: Final = logging.getLogger(__name__)
# Java's client renews a token after the same part of its lifetime.
_RENEWAL_FACTOR: Final = 0.8


class IssuedToken(NamedTuple):
    """A token and the seconds until it expires, or 0 if they are unknown."""

    text: str
    lifetime: float


class _CachedToken(NamedTuple):
    text: str
    renewal: float
    expiry: float


class CachingTokenProvider(AbstractTokenProvider):
    """A token provider that caches one token, for any number of event loops and threads.

    A token is requested in a daemon thread. After 80% of its lifetime the next login requests a new
    one. If that request fails, the old token is used until it expires.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: _CachedToken | None = None

    @abstractmethod
    def request_token(self) -> IssuedToken:
        """Request a new token. This method may block."""

    async def token(self) -> str:
        """Return a token that has not expired. If a new one is needed, wait for it."""
        cached = self._cached
        if cached is not None and time.monotonic() < cached.renewal:
            return cached.text
        return await call_in_daemon_thread("asyncconsumer token", self._renew)

    def _renew(self) -> str:
        with self._lock:
            cached, now = self._cached, time.monotonic()
            if cached is not None and now < cached.renewal:
                return cached.text  # another thread renewed it
            try:
                issued = self.request_token()
            except ConsumerError as error:
                if cached is None or time.monotonic() >= cached.expiry:
                    raise
                _log.warning(
                    "failed to renew the token, so the old one is used until it expires: %s", error
                )
                return cached.text
            self._cached = _CachedToken(
                issued.text, now + issued.lifetime * _RENEWAL_FACTOR, now + issued.lifetime
            )
            return issued.text
