"""A TCP proxy that injects network faults, for tests.

Put it in front of a Kafka broker or a ZooKeeper server and let clients connect to it::

    async with TcpProxy("127.0.0.1", 9092) as proxy:
        client = await connect(proxy.address)
        proxy.black_hole()
        ...
        proxy.heal()

It needs Linux or another POSIX system, and runs on asyncio's own loop and on uvloop.
"""

from asyncconsumer.testing.proxy.connection import Connection
from asyncconsumer.testing.proxy.faults import Direction, Faults, Frame, FrameHook, Verdict
from asyncconsumer.testing.proxy.frames import ZOOKEEPER_CONNECT, kafka_api_key, zookeeper_opcode
from asyncconsumer.testing.proxy.server import Statistics, TcpProxy

__all__ = [
    "ZOOKEEPER_CONNECT",
    "Connection",
    "Direction",
    "Faults",
    "Frame",
    "FrameHook",
    "Statistics",
    "TcpProxy",
    "Verdict",
    "kafka_api_key",
    "zookeeper_opcode",
]
