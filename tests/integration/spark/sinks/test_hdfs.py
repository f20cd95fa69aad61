"""Landing folders and Delta tables in a real HDFS."""

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hdfs_native import Client

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks.delta import DeltaSink
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import batch, joined, make_feeder, numbers
from tests.support.hdfs_server import Hdfs
from tests.support.hdfs_server import hdfs as hdfs
from tests.support.real_consumer import send

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def folder(hdfs: Hdfs) -> str:
    return hdfs.folder()


@pytest.fixture
def make(folder: str) -> Callable[[], LandingFolder]:
    def make_sink() -> LandingFolder:
        sink = LandingFolder(folder)
        sink.open()
        return sink

    return make_sink


def write(sink: Any, what: FeedBatch) -> set[TopicPartition]:
    return set(sink.publish(what, sink.prepare(what)))


def test_written_files_are_visible_and_offsets_are_loaded(
    make: Callable[[], LandingFolder], hdfs: Hdfs, folder: str
) -> None:
    sink = make()
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    what = joined(batch("t", 0, 10, range(5)), batch("t", 1, 0, range(5, 8)))
    assert write(sink, what) == set()
    assert write(sink, batch("t", 0, 15, [8])) == set()
    assert numbers(hdfs.landed(folder)) == list(range(9))
    assert hdfs.names(folder, "_pending") == []
    assert len(hdfs.names(folder, "_claims/t-0")) == 1
    assert make().load([PLACE, OTHER]) == {PLACE: 16, OTHER: 3}


def test_one_of_several_concurrent_writers_succeeds(
    make: Callable[[], LandingFolder], hdfs: Hdfs, folder: str
) -> None:
    """Check that only the writer that knows the last claim can rename it."""
    sinks, start, refusals = [make() for _ in range(8)], threading.Barrier(8), list[object]()

    def compete(sink: LandingFolder, what: FeedBatch) -> None:
        sink.load([PLACE])
        prepared = sink.prepare(what)
        start.wait()
        refusals.append(set(sink.publish(what, prepared)))

    for first in range(0, 50, 10):
        batches = [batch("t", 0, first, range(first, first + 10)) for _ in sinks]
        threads = [
            threading.Thread(target=compete, args=pair) for pair in zip(sinks, batches, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refusals.count(set()) == 1
        assert refusals.count({PLACE}) == 7
        refusals.clear()
    assert numbers(hdfs.landed(folder)) == list(range(50))


def test_the_next_writer_completes_a_claimed_write(
    make: Callable[[], LandingFolder], hdfs: Hdfs, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what = make(), batch("t", 0, 0, range(10))
    sink.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(LandingFolder, "_make_visible", lambda *_: None)
        sink.publish(what, sink.prepare(what))
    assert hdfs.names(folder) == []
    assert make().load([PLACE]) == {PLACE: 10}
    assert numbers(hdfs.landed(folder)) == list(range(10))
    assert hdfs.names(folder, "_pending") == []


def test_a_claim_with_a_lost_response_is_effective(
    make: Callable[[], LandingFolder], hdfs: Hdfs, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what = make(), batch("t", 0, 0, range(5))
    sink.load([PLACE])
    prepared, rename = sink.prepare(what), Client.rename

    def lost(*arguments: Any) -> None:
        rename(*arguments)
        raise OSError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(Client, "rename", lost)
        with pytest.raises(OSError, match="connection reset"):
            sink.publish(what, prepared)
    assert set(sink.publish(what, prepared)) == set()
    assert write(sink, batch("t", 0, 5, [5])) == set()
    assert numbers(hdfs.landed(folder)) == list(range(6))


def test_a_file_as_landing_folder_is_refused(hdfs: Hdfs, folder: str) -> None:
    hdfs.client().create(f"/{folder.rpartition('/')[2]}").close()
    with pytest.raises(ConfigError, match="is a file"):
        LandingFolder(folder).open()


async def test_feeders_write_a_topic_to_a_folder(
    kafka: KafkaHandle, hdfs: Hdfs, folder: str
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    for first in (0, 200):
        await send(kafka, topic, range(first, first + 200), 3)
        async with make_feeder(kafka, topic, group, LandingFolder(folder)) as feeder:
            await feeder.caught_up()
        del feeder
    gc.collect()  # a client closes its connections when it is deleted
    assert numbers(hdfs.landed(folder)) == list(range(400))


@pytest.mark.allow_leftovers("delta-rs keeps the connections of readers")
def test_delta_tables_are_committed_by_renames(folder: str, delta_rs: Path) -> None:
    sink, other = DeltaSink(folder), DeltaSink(folder)
    for each in (sink, other):
        each.open()
        assert each.load([PLACE]) == {PLACE: None}
    assert write(sink, batch("t", 0, 0, range(10))) == set()
    assert write(other, batch("t", 0, 0, range(5))) == {PLACE}
    assert write(other, batch("t", 0, 10, range(10, 20))) == set()
    assert numbers(DeltaTable(folder).to_pyarrow_table(columns=["value"])) == list(range(20))
