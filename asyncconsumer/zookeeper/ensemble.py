"""The search for a ZooKeeper server that accepts the session."""

import asyncio
import logging
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from asyncconsumer.aio.backoff import backoff
from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.errors import ConsumerError, ServerUnusable
from asyncconsumer.types import Address
from asyncconsumer.zookeeper.transport import ConnectRequest, Transport, TransportOpener

_MIN_SECONDS_TO_OPEN: Final = 0.5  # seconds
_STABLE_AFTER: Final = 1.0  # seconds after which a connection counts as stable


class OpenedTransport(NamedTuple):
    """An open transport to a server, and the loop time at which its opening began."""

    address: Address
    transport: Transport
    began: float


class Ensemble:
    """The servers of an ensemble, which are tried in random order until one accepts the session.

    A server may be down, without a quorum, or behind the last zxid of this client. It then closes
    the connection, or does not answer a connect request in time. That does not mean that the
    session has expired, so the next server is tried.
    """

    def __init__(
        self, config: ZooKeeperConfig, randomness: Random, opener: TransportOpener
    ) -> None:
        self.errors: dict[Address, str] = {}  # the last error of each server
        self._config = config
        self._randomness = randomness
        self._opener = opener
        self._delays = self._new_delays()
        self._log = RateLimitedLogger(logging.getLogger(__name__))

    def allowed(self, timeout_ms: int) -> float:
        """Return the time limit in seconds for one server, for the session timeout `timeout_ms`.

        All servers together take a third of the session timeout, but each gets at least 0.5 s.
        """
        return max(_MIN_SECONDS_TO_OPEN, timeout_ms / 3000 / len(self._config.addresses))

    async def find(self, request: ConnectRequest) -> OpenedTransport:
        """Return the transport of the first server that answers the connect request.

        Try all servers, again and again, until one does.
        """
        while True:
            for address in self._shuffled():
                began = asyncio.get_running_loop().time()
                allowed = self.allowed(request.timeout_ms)
                try:
                    async with asyncio.timeout(allowed):
                        return OpenedTransport(
                            address, await self._opener(address, self._config, request), began
                        )
                except TimeoutError:
                    reason = f"no answer to the connect request within {allowed:g} s"
                    self.note_failure(address, reason)
                except ServerUnusable as error:
                    self.note_failure(address, error.reason)
            await self.pause()

    async def lost(self, address: Address, ending: ConsumerError, lasted: float) -> None:
        """Log that the connection to `address` ended after `lasted` seconds, because of `ending`.

        After a short connection, wait before the next attempt, a little longer each time.
        """
        reason = ending.reason if isinstance(ending, ServerUnusable) else str(ending)
        self.note_failure(address, reason)
        if lasted >= _STABLE_AFTER:
            self._delays = self._new_delays()
        else:
            await self.pause()

    def note_failure(self, address: Address, reason: str) -> None:
        """Store the reason of a server's failure in `errors`, and log it."""
        self.errors[address] = reason
        self._log.warning("ZooKeeper %s: %s", address, reason)

    async def pause(self) -> None:
        """Wait before the next round over all servers. The waits increase from 50 ms up to 1 s."""
        await asyncio.sleep(next(self._delays))

    def _shuffled(self) -> list[Address]:
        addresses = self._config.addresses
        return self._randomness.sample(addresses, len(addresses))

    def _new_delays(self) -> Iterator[float]:
        return backoff(0.05, 1.0, self._randomness)
