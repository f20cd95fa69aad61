"""Connections without sockets, for virtual time."""

import asyncio
import struct
from typing import Any

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConnectFailed, ConsumerError
from asyncconsumer.model import Address
from asyncconsumer.net.connection import Connection

K = Address("k", 9092)


class Wire(asyncio.Transport):
    """Takes what is written; a test says what is received."""

    def __init__(self, address: Address = K, **options: Any) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        config = ConnectionConfig(bootstrap_servers=str(address), **options)
        self.connection = Connection(address, config)
        self.connection.versions = {3: (12, 12), 1: (11, 11)}
        self.connection.connection_made(self)

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def abort(self) -> None:
        if self.sent[-1:] != [b"abort"]:
            self.sent.append(b"abort")
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def receive(self, correlation: int, body: bytes) -> None:
        data = struct.pack(">ii", len(body) + 4, correlation) + body
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))


def reachable(address: Address) -> ConsumerError | None:
    return None


def unreachable(address: Address) -> ConsumerError | None:
    return ConnectFailed(address, "nobody listens")


class FakeOpener:
    """Opens connections that lead nowhere, or fails as the test says, and keeps count."""

    def __init__(self) -> None:
        self.tries: list[tuple[float, Address]] = []
        self.wires: list[Wire] = []
        self.fails = reachable
        self.takes = 0.0  # seconds

    async def __call__(self, address: Address, config: ConnectionConfig) -> Connection:
        self.tries.append((asyncio.get_running_loop().time(), address))
        await asyncio.sleep(self.takes)
        if (error := self.fails(address)) is not None:
            raise error
        self.wires.append(Wire(address))
        return self.wires[-1].connection

    def busiest(self, seconds: float) -> int:
        """The most tries in any window of that length."""
        times = [when for when, _ in self.tries]
        return max(sum(start <= when < start + seconds for when in times) for start in times)
