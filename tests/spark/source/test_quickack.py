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
def hesitant() -> Iterator[socket.socket]:
    """A connection that puts off acknowledging, as they do after a while."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not is_prompt(connection)
        yield connection


def is_prompt(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def test_every_connection_is_acknowledged_and_nothing_left_open(hesitant: socket.socket) -> None:
    tested, theirs = socket.socketpair()  # not TCP: nothing to do, and no error
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    enable_quickack()
    assert is_prompt(hesitant)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    for connection in (tested, theirs):
        connection.close()


@pytest.mark.parametrize("kind", [KafkaReader, KafkaStreamReader])
def test_a_reader_that_arrives_does_it(
    hesitant: socket.socket, kind: type[KafkaReader] | type[KafkaStreamReader]
) -> None:
    options = parse(OPTIONS, streaming=kind is KafkaStreamReader)
    arrived = copy.copy(kind(options, StructType()))  # made as unpickling makes it
    assert is_prompt(hesitant)
    assert vars(arrived).keys() == vars(kind(options, StructType())).keys()
