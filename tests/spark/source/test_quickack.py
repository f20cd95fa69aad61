"""Quick acknowledgements of a task, so that the rest of a response arrives at once."""

import copy
import os
import socket
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from asyncconsumer.spark.options.source import parse
from asyncconsumer.spark.source.batch_reader import KafkaReader
from asyncconsumer.spark.source.stream_reader import KafkaStreamReader
from asyncconsumer.spark.source.worker_process import enable_quickack

pytestmark = pytest.mark.fast
OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


@pytest.fixture
def delaying() -> Iterator[socket.socket]:
    """Yield a connection that delays acknowledgements."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not has_quickack(connection)
        yield connection


def has_quickack(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def test_quickack_is_enabled_for_all_tcp_connections(delaying: socket.socket) -> None:
    tested, theirs = socket.socketpair()  # no TCP sockets: no change and no error
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    enable_quickack()
    assert has_quickack(delaying)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    for connection in (tested, theirs):
        connection.close()


@pytest.mark.parametrize("kind", [KafkaReader, KafkaStreamReader])
def test_unpickling_a_reader_enables_quickack(
    delaying: socket.socket, kind: type[KafkaReader] | type[KafkaStreamReader]
) -> None:
    options = parse(OPTIONS, streaming=kind is KafkaStreamReader)
    arrived = copy.copy(kind(options, StructType()))  # copied as by unpickling
    assert has_quickack(delaying)
    assert vars(arrived).keys() == vars(kind(options, StructType())).keys()
