"""Landing folders and Delta tables in an S3 server, which `make s3` builds."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from deltalake import DeltaTable
from obstore.exceptions import BaseError

from asyncconsumer import TopicPartition
from asyncconsumer.errors import ConfigError
from asyncconsumer.spark.feeder.batches import FeedBatch
from asyncconsumer.spark.sinks.delta import DeltaSink
from asyncconsumer.spark.sinks.landing import LandingFolder
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.delta_runtime import delta_rs as delta_rs
from tests.support.feeder_tables import batch, joined, landed, make_feeder, numbers
from tests.support.helpers import until
from tests.support.real_consumer import send
from tests.support.s3_server import S3, url_of
from tests.support.s3_server import s3 as s3

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def folder(s3: S3) -> Path:
    return s3.folder()


@pytest.fixture
def make(s3: S3, folder: Path) -> Callable[[], LandingFolder]:
    def make_sink() -> LandingFolder:
        sink = LandingFolder(url_of(folder), storage_options=s3.options)
        sink.open()
        return sink

    return make_sink


def write(sink: LandingFolder, what: FeedBatch) -> set[TopicPartition]:
    return set(sink.publish(what, sink.prepare(what)))


def pending(folder: Path) -> list[Path]:
    return list((folder / "_pending").glob("*"))


def test_written_files_are_visible_and_offsets_are_loaded(
    make: Callable[[], LandingFolder], folder: Path
) -> None:
    sink = make()
    assert sink.load([PLACE, OTHER]) == {PLACE: None, OTHER: None}
    what = joined(batch("t", 0, 10, range(5)), batch("t", 1, 0, range(5, 8)))
    assert write(sink, what) == set()
    assert write(sink, batch("t", 0, 15, [8])) == set()
    assert numbers(landed(folder)) == list(range(9))
    assert pending(folder) == []
    assert make().load([PLACE, OTHER]) == {PLACE: 16, OTHER: 3}


def test_a_writer_with_an_old_claim_is_refused(
    make: Callable[[], LandingFolder], folder: Path
) -> None:
    sink, zombie = make(), make()
    for each in (sink, zombie):
        each.load([PLACE])
    late = batch("t", 0, 0, range(5))
    prepared = zombie.prepare(late)
    assert write(sink, batch("t", 0, 0, range(10))) == set()
    assert set(zombie.publish(late, prepared)) == {PLACE}
    zombie.load([PLACE])
    later = batch("t", 0, 10, range(10, 12))
    prepared = zombie.prepare(later)
    assert write(sink, batch("t", 0, 10, range(10, 20))) == set()
    assert set(zombie.publish(later, prepared)) == {PLACE}
    assert numbers(landed(folder)) == list(range(20))
    assert pending(folder) == []


def test_one_of_several_concurrent_writers_succeeds(
    make: Callable[[], LandingFolder], folder: Path
) -> None:
    """Check that the server replaces an object only for the writer that knows the last one."""
    sinks, start, refusals = [make() for _ in range(8)], threading.Barrier(8), list[object]()

    def compete(sink: LandingFolder, what: FeedBatch) -> None:
        prepared = sink.prepare(what)
        start.wait()
        refusals.append(set(sink.publish(what, prepared)))

    for first in range(0, 50, 10):
        for sink in sinks:
            sink.load([PLACE])
        batches = [batch("t", 0, first, range(first, first + 10)) for _ in sinks]
        threads = [
            threading.Thread(target=compete, args=pair) for pair in zip(sinks, batches, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refusals.count(set()) == 1
        refusals.clear()
    assert numbers(landed(folder)) == list(range(50))


def test_the_next_writer_completes_a_claimed_write(
    make: Callable[[], LandingFolder], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what = make(), batch("t", 0, 0, range(10))
    sink.load([PLACE])
    with monkeypatch.context() as patch:
        patch.setattr(LandingFolder, "_make_visible", lambda *_: None)
        sink.publish(what, sink.prepare(what))
    assert not list(folder.glob("*.parquet"))
    assert make().load([PLACE]) == {PLACE: 10}
    assert numbers(landed(folder)) == list(range(10))
    assert pending(folder) == []


def test_a_claim_with_a_lost_response_is_effective(
    make: Callable[[], LandingFolder], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, what = make(), batch("t", 0, 0, range(5))
    sink.load([PLACE])
    prepared, put = sink.prepare(what), obstore.put

    def lost(*arguments: Any, **options: Any) -> None:
        put(*arguments, **options)
        raise OSError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", lost)
        with pytest.raises(OSError, match="connection reset"):
            sink.publish(what, prepared)
    assert set(sink.publish(what, prepared)) == set()
    assert write(sink, batch("t", 0, 5, [5])) == set()
    assert numbers(landed(folder)) == list(range(6))


def test_a_batch_of_many_partitions_is_written(
    make: Callable[[], LandingFolder], folder: Path
) -> None:
    sink = make()
    places = [TopicPartition("t", number) for number in range(20)]
    sink.load(places)
    what = joined(*(batch("t", number, 0, [number]) for number in range(20)))
    assert write(sink, what) == set()
    assert numbers(landed(folder)) == list(range(20))
    assert make().load(places) == dict.fromkeys(places, 1)


def test_an_invalid_claim_is_reported(
    make: Callable[[], LandingFolder], s3: S3, folder: Path
) -> None:
    obstore.put(s3.store(), f"{folder.name}/_claims/t-0", b"notes")
    with pytest.raises(ConfigError, match=r"_claims/t-0 is not a claim"):
        make().load([PLACE])


def test_a_wrong_password_is_reported_when_the_folder_is_opened(s3: S3, folder: Path) -> None:
    options = {**s3.options, "aws_secret_access_key": "wrong"}
    with pytest.raises(BaseError, match="SignatureDoesNotMatch"):
        LandingFolder(url_of(folder), storage_options=options).open()


def test_credentials_come_from_the_environment(
    s3: S3, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    sink = LandingFolder(url_of(folder), storage_options={"allow_http": "true"})
    sink.open()
    sink.load([PLACE])
    assert write(sink, batch("t", 0, 0, [0])) == set()
    assert numbers(landed(folder)) == [0]


async def test_feeders_write_a_topic_to_a_folder_of_objects(
    kafka: KafkaHandle, s3: S3, folder: Path
) -> None:
    topic, group = await kafka.topic(partitions=3), kafka.group()
    await send(kafka, topic, range(400), 3)
    sinks = [LandingFolder(url_of(folder), storage_options=s3.options) for _ in range(2)]
    async with (
        make_feeder(kafka, topic, group, sinks[0]) as feeder,
        make_feeder(kafka, topic, group, sinks[1]) as other,
    ):
        await until(lambda: len(feeder._state.feeds) + len(other._state.feeds) == 3)
        await send(kafka, topic, range(400, 500), 3)
        await until(lambda: len(numbers(landed(folder))) >= 500)
    assert numbers(landed(folder)) == list(range(500))


def test_delta_tables_are_committed_by_conditional_writes(s3: S3, folder: Path) -> None:
    options = s3.options
    sinks = [DeltaSink(url_of(folder), storage_options=options) for _ in range(4)]
    start, refusals = threading.Barrier(4), list[object]()

    def compete(sink: DeltaSink, what: FeedBatch) -> None:
        prepared = sink.prepare(what)
        start.wait()
        refusals.append(set(sink.publish(what, prepared)))

    for first in range(0, 30, 10):
        for sink in sinks:
            sink.load([PLACE])
        batches = [batch("t", 0, first, range(first, first + 10)) for _ in sinks]
        threads = [
            threading.Thread(target=compete, args=pair) for pair in zip(sinks, batches, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refusals.count(set()) == 1
        refusals.clear()
    table = DeltaTable(url_of(folder), storage_options=options)
    assert numbers(table.to_pyarrow_table(columns=["value"])) == list(range(30))
