"""Connections without sockets, for virtual time."""

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import ConnectFailed, ConsumerError
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.protocol.messages import MetadataRequest
from asyncconsumer.types import Address

K = Address("k", 9092)


class Wire(asyncio.Transport):
    """A transport that records written bytes. A test sets the responses."""

    def __init__(self, address: Address = K, **options: Any) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.answer: Callable[[bytes], bytes | None] = lambda request: None
        config = ConnectionConfig(bootstrap_servers=str(address), **options)
        self.connection = BrokerConnection(address, config)
        self.connection.versions = {3: (12, 12), 1: (11, 11)}
        self.connection.connection_made(self)

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))
        answer = self.answer(bytes(data))
        if answer is not None:
            (correlation,) = struct.unpack_from(">i", data, 8)
            asyncio.get_running_loop().call_soon(self.receive, correlation, answer)

    def abort(self) -> None:
        if self.sent[-1:] != [b"abort"]:
            self.sent.append(b"abort")
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def receive(self, correlation: int, body: bytes) -> None:
        data = struct.pack(">ii", len(body) + 4, correlation) + body
        while data and not self.connection.is_closed:
            room = self.connection.get_buffer(-1)
            piece, data = data[: len(room)], data[len(room) :]
            room[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))


def reachable(address: Address) -> ConsumerError | None:
    return None


def unreachable(address: Address) -> ConsumerError | None:
    return ConnectFailed(address, "connection refused")


class FakeOpener:
    """An opener of fake connections, which counts attempts and can be made to fail."""

    def __init__(self) -> None:
        self.tries: list[tuple[float, Address]] = []
        self.wires: list[Wire] = []
        self.fails = reachable
        self.answers: Callable[[Address, bytes], bytes | None] = lambda address, request: None
        self.takes = 0.0  # seconds

    async def __call__(self, address: Address, config: ConnectionConfig) -> BrokerConnection:
        self.tries.append((asyncio.get_running_loop().time(), address))
        await asyncio.sleep(self.takes)
        if (error := self.fails(address)) is not None:
            raise error
        self.wires.append(wire := Wire(address))
        wire.answer = lambda request: self.answers(address, request)
        return wire.connection

    def busiest(self, seconds: float) -> int:
        """Return the largest number of attempts in a window of this length."""
        times = [when for when, _ in self.tries]
        return max(sum(start <= when < start + seconds for when in times) for start in times)


def metadata_answer(
    brokers: Mapping[int, tuple[str, int]],
    topics: Mapping[str, tuple[UUID | None, int, Mapping[int, tuple[int, int]]]],
) -> bytes:
    """Return a Metadata response of version 12. Topics have id, error code, leaders and epochs."""
    response = MetadataRequest([]).prepare({3: (12, 12)}).RESPONSE_TYPE
    rows: list[Any] = [
        (
            code,
            name,
            topic_id,
            False,
            [
                (0, number, leader, epoch, [1, 2], [1, 2], [], {})
                for number, (leader, epoch) in leaders.items()
            ],
            0,
            {},
        )
        for name, (topic_id, code, leaders) in topics.items()
    ]
    places: list[Any] = [(node, host, port, None, {}) for node, (host, port) in brokers.items()]
    # the header's tagged fields, then the body
    return b"\x00" + bytes(response(0, places, "c", 1, rows, {}).encode())
