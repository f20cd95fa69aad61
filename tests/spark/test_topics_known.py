"""A topic that was deleted and made anew while nobody fed it: it must not be taken for the old one.

By then it may be as long as the old one was, so that no offset tells.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable

from asyncconsumer import Consumer, TopicPartition
from asyncconsumer.errors import SinkAhead
from asyncconsumer.spark.batches import Batch
from asyncconsumer.spark.delta import DeltaSink
from asyncconsumer.spark.landing import LandingFolder
from asyncconsumer.testing.clock import simulated
from asyncconsumer.testing.handles import KafkaHandle
from tests.consumer.real import send
from tests.spark.delta_runtime import delta_rs as delta_rs
from tests.spark.lake import batch, feeder, joined
from tests.spark.shelf import AT, Shelf, world
from tests.spark.shelf import feeder as fed_by_fakes

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, ANOTHER = UUID(int=1 << 100), UUID(int=2 << 100)
BOTH: list[Any] = [LandingFolder, DeltaSink]

of_both = pytest.mark.parametrize("kind", BOTH)


def opened(kind: Callable[[str], Any], folder: Path) -> Any:
    one = kind(str(folder / "sink"))
    one.open()
    one.load([PLACE, OTHER])
    return one


def write(one: Any, what: Batch) -> set[TopicPartition]:
    return set(one.publish(what, one.prepare(what)))


@pytest.mark.fast
@of_both
def test_a_topic_is_known_from_its_first_record_on(kind: Any, tmp_path: Path) -> None:
    one = opened(kind, tmp_path)
    assert not one.strangers({"t": ANOTHER})
    assert not one.strangers({"t": ONE})  # nothing was written of the other
    assert write(one, batch("t", 0, 0, range(3))) == set()
    for again in (one, opened(kind, tmp_path)):
        assert not again.strangers({"t": ONE, "u": ANOTHER})
        assert set(again.strangers({"t": ANOTHER, "u": ANOTHER})) == {"t"}


@pytest.mark.fast
@of_both
def test_two_that_meet_a_topic_at_the_same_time_agree(kind: Any, tmp_path: Path) -> None:
    writers = [opened(kind, tmp_path), opened(kind, tmp_path)]
    for one in writers:
        assert not one.strangers({"t": ONE})
    for number, one in enumerate(writers):
        assert write(one, batch("t", number, 0, [number])) == set()
        assert write(one, batch("t", number, 1, [number])) == set()
    assert not writers[0].strangers({"t": ONE})
    assert set(writers[1].strangers({"t": ANOTHER})) == {"t"}


@pytest.mark.fast
@of_both
def test_the_first_record_says_which_topic_it_is(kind: Any, tmp_path: Path) -> None:
    first, late = opened(kind, tmp_path), opened(kind, tmp_path)
    first.strangers({"t": ONE})
    late.strangers({"t": ANOTHER})
    write(first, batch("t", 0, 0, [0]))
    write(late, batch("t", 1, 0, [1]))
    assert set(opened(kind, tmp_path).strangers({"t": ANOTHER})) == {"t"}


@pytest.mark.fast
@of_both
def test_topics_may_come_one_after_another(kind: Any, tmp_path: Path) -> None:
    one = opened(kind, tmp_path)
    one.load([TopicPartition("u", 0)])
    one.strangers({"t": ONE})
    one.strangers({"u": ONE})
    write(one, joined(batch("t", 0, 0, [0]), batch("u", 0, 0, [1])))
    again = opened(kind, tmp_path)
    assert set(again.strangers({"t": ANOTHER, "u": ANOTHER})) == {"t", "u"}


@pytest.mark.fast
@of_both
def test_what_was_fed_before_ids_were_kept_is_known_from_the_next_batch_on(
    kind: Any, tmp_path: Path
) -> None:
    one = opened(kind, tmp_path)
    assert write(one, batch("t", 0, 0, range(3))) == set()
    one = opened(kind, tmp_path)
    assert not one.strangers({"t": ONE})
    assert write(one, batch("t", 0, 3, range(3))) == set()
    assert set(opened(kind, tmp_path).strangers({"t": ANOTHER})) == {"t"}


@pytest.mark.fast
@of_both
def test_topics_are_told_apart(kind: Any, tmp_path: Path) -> None:
    """Each has its own id, however long its name is; and who has none is never a stranger."""
    names = ["t" * 249, "t" * 248 + "u", "v"]
    one = opened(kind, tmp_path)
    one.load([TopicPartition(name, 0) for name in names])
    ids = {name: UUID(int=(number + 1) << 100) for number, name in enumerate(names[:2])}
    assert not one.strangers(ids)
    assert write(one, joined(*(batch(name, 0, 0, [1]) for name in names))) == set()
    again = opened(kind, tmp_path)
    assert not again.strangers(ids)
    assert not again.strangers({})
    assert set(again.strangers(dict(zip(names, reversed(ids.values()), strict=False)))) == set(ids)


@pytest.mark.fast
def test_an_id_is_one_commit_with_the_first_records(tmp_path: Path) -> None:
    one = opened(DeltaSink, tmp_path)
    one.strangers({"t": ONE})
    for at in range(3):
        write(one, batch("t", 0, at, [at]))
    log = sorted((tmp_path / "sink" / "_delta_log").glob("*.json"))
    told = [number for number, path in enumerate(log) if "asyncconsumer:t:id" in path.read_text()]
    assert told == [1]  # the table itself is 0
    assert DeltaTable(one.uri).transaction_version("asyncconsumer:t:id") == ONE.int >> 65


class Knows(Shelf):
    """One that keeps ids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, UUID] = {}

    async def strangers(self, topics: Mapping[str, UUID]) -> Collection[str]:
        return {one for one, given in topics.items() if self.ids.setdefault(one, given) != given}


@pytest.mark.fast
@pytest.mark.parametrize("records", [5, 30, 100])
@simulated(seeds=range(2), limit=600)
async def test_nothing_is_fed_of_a_topic_that_was_made_anew_meanwhile(records: int) -> None:
    async with world(records=30) as cluster:
        sink = Knows()
        for _ in range(2):
            async with fed_by_fakes(cluster, sink) as one:
                await one.caught_up()
        cluster.recreate_topic("t")
        cluster.append("t", 0, records)
        with pytest.raises(SinkAhead, match=r"t\[0\] up to offset 30.* created anew"):
            async with fed_by_fakes(cluster, sink) as one, asyncio.timeout(60):
                await one.run()
        assert sink.ends == {AT: 30}


async def test_delta_is_told_of_another_name_when_a_topic_is_made_anew(kafka: KafkaHandle) -> None:
    """Its versions begin again, and Delta leaves out what is not above the last one."""
    topic, group = await kafka.topic(), kafka.group()
    written = list[Batch]()

    def write(_: object, batch: Batch) -> None:
        written.append(batch)

    for count in (20, 10):
        await send(kafka, topic, range(count))
        async with feeder(kafka, topic, group, write=write) as one:
            await one.caught_up()
        await kafka.admin.delete_topic(topic)
        await kafka.admin.create_topic(topic)
    first, second = written
    assert (first.txn_version, second.txn_version) == (20, 10)
    assert first.txn_app_id != second.txn_app_id


@of_both
async def test_a_real_topic_that_was_made_anew_and_is_longer(
    kind: Any, kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group = await kafka.topic(), kafka.group()
    await send(kafka, topic, range(20))
    async with feeder(kafka, topic, group, kind(str(tmp_path / "sink"))) as one:
        await one.caught_up()
        before = await one._consumer.topic_ids([topic, "nowhere"])
    await kafka.admin.delete_topic(topic)
    await kafka.admin.create_topic(topic)
    await send(kafka, topic, range(100, 150))
    place = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=kafka.bootstrap_servers, partitions=[place]) as other:
        after = await other.topic_ids([topic])
    assert before.keys() == after.keys() == {topic}
    assert before != after
    with pytest.raises(SinkAhead, match="created anew"):
        async with feeder(kafka, topic, group, kind(str(tmp_path / "sink"))) as one:
            await one.run()
