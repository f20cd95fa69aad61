"""`asyncconsumer groups` on a real ZooKeeper and a real broker."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import typer
from aiokafka import AIOKafkaProducer

from asyncconsumer import ConfigError, SimpleConsumer, TopicPartition
from asyncconsumer.admin.zookeeper_groups import zookeeper_offsets
from asyncconsumer.cli.cluster_access import open_cluster, open_zookeeper
from asyncconsumer.cli.groups import changes, listing
from asyncconsumer.cli.groups.changes import ConcurrentCommit, Confirmation
from asyncconsumer.cli.properties import storage_properties
from asyncconsumer.config import ClassicConfig, ZooKeeperConfig
from asyncconsumer.errors import UnknownTopicOrPartition
from asyncconsumer.testing.handles import KafkaWithZooKeeper
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.recipes import ensure_path
from asyncconsumer.zookeeper.session import ZooKeeperSession
from tests.support.helpers import delete_records
from tests.support.zookeeper_nodes import nodes_of

DRY_RUN = Confirmation(yes=False, force=False)
CONFIRMED = Confirmation(yes=True, force=False)
FORCED = Confirmation(yes=True, force=True)


class World:
    """A topic with records, and a group that has read some of them."""

    def __init__(self, kafka: KafkaWithZooKeeper, topic: str, group: str) -> None:
        self.kafka, self.topic, self.group = kafka, topic, group

    def config(self, storage: str = "zookeeper", **options: str) -> ClassicConfig:
        properties = {
            "zookeeper.connect": self.kafka.zookeeper_connect,
            "group.id": self.group,
            **storage_properties(storage),
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        return ClassicConfig.from_properties(properties)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    async def commit(self, offsets: Mapping[int, int]) -> None:
        async with self.session() as session:
            named = {self.partition(number): offset for number, offset in offsets.items()}
            await zookeeper_offsets(session, self.group).commit(named)

    async def commit_to_kafka(self, offsets: Mapping[int, int]) -> None:
        async with SimpleConsumer(self.kafka.bootstrap_servers) as simple:
            named = {self.partition(number): offset for number, offset in offsets.items()}
            await simple.commit_offsets(self.group, named)

    async def in_zookeeper(self) -> dict[int, int]:
        async with nodes_of(self.kafka.zookeeper_connect, self.group) as nodes:
            result = await nodes.offsets()
        return {partition.partition: offset for partition, offset in result.items()}

    async def in_kafka(self) -> dict[int, int | None]:
        async with SimpleConsumer(self.kafka.bootstrap_servers) as simple:
            every = [self.partition(number) for number in range(3)]
            result = await simple.fetch_offsets(self.group, every)
        return {tp.partition: offset for tp, offset in result.items() if offset is not None}

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ZooKeeperSession]:
        config = ZooKeeperConfig(zookeeper_connect=self.kafka.zookeeper_connect)
        async with ZooKeeperSession(config, randomness=Random(1)) as session:
            yield session

    @asynccontextmanager
    async def member(
        self, name: str, subscription: Any, pattern: str = "static", owning: Mapping[int, int] = {}
    ) -> AsyncIterator[str]:
        """Register a member in ZooKeeper. `owning` maps its partitions to numbers of streams."""
        paths = GroupPaths(self.group)
        registration = {"version": 1, "subscription": subscription, "pattern": pattern}
        async with self.session() as session:
            await ensure_path(session, paths.ids, b"")
            await ensure_path(session, paths.topic_owners(self.topic))
            data = json.dumps(registration).encode()
            await session.create(f"{paths.ids}/{self.group}_{name}", data, ephemeral=True)
            for number, stream in owning.items():
                thread = f"{self.group}_{name}-{stream}"
                path = paths.owner(self.partition(number))
                await session.create(path, thread.encode(), ephemeral=True)
            yield f"{self.group}_{name}"


@pytest.fixture
async def world(kafka_zk: KafkaWithZooKeeper) -> World:
    """Return three partitions of 0, 10 and 20 records. The group has read 4 of the second."""
    forever = {"retention.ms": "-1"}  # the records are of 1970
    topic = await kafka_zk.topic(partitions=3, config=forever)
    for number, count in ((1, 10), (2, 20)):
        await _fill(kafka_zk, topic, number, count)
    world = World(kafka_zk, topic, kafka_zk.group())
    await world.commit({1: 4})
    return world


async def _fill(kafka: KafkaWithZooKeeper, topic: str, partition: int, count: int) -> None:

    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(
                topic, b"%d" % number, partition=partition, timestamp_ms=1000 + number
            )
        await producer.flush()


async def described(
    world: World, capsys: pytest.CaptureFixture[str], storage: str, **options: str
) -> Any:
    await listing.describe(world.config(storage, **options), as_json=True)
    return json.loads(capsys.readouterr().out)


def rows(reported: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in reported["partitions"]]


async def test_groups_are_listed_with_their_live_members(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world.member("a", {world.topic: 1}), world.member("b", {world.topic: 1}):
        await listing.list_groups(world.config(), as_json=True)
        counts = {line["group"]: line["members"] for line in json.loads(capsys.readouterr().out)}
        assert counts[world.group] == 2
        await listing.list_groups(world.config(), as_json=False)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if world.group in line]
        assert line.split("│")[2].strip() == "2"


async def test_offsets_lag_owners_and_idle_members_of_a_group_are_described(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"(?!" + world.topic + ").*": 1}
    async with (
        world.member("host.example-1794788271647-c7641df", {world.topic: 2}, owning={0: 0, 1: 1}),
        world.member("idle", {world.topic: 1}, "white_list") as idle,
        world.member("else", other, "black_list") as elsewhere,
    ):
        reported = await described(world, capsys, "zookeeper")
        busy = f"{world.group}_host.example-1794788271647-c7641df"
        seen = rows(reported, "partition", "zookeeper_offset", "kafka_offset", "end_offset", "lag")
        assert seen == [(0, None, None, 0, None), (1, 4, None, 10, 6), (2, None, None, 20, None)]
        assert rows(reported, "owner", "host", "pattern") == [
            (f"{busy}-0", "host.example", "static"),
            (f"{busy}-1", "host.example", "static"),
            (None, None, None),
        ]
        assert {line["consumer_id"]: line["has_partitions"] for line in reported["members"]} == {
            busy: True,
            idle: False,
            elsewhere: False,
        }
        assert reported["notes"] == []

        await listing.describe(world.config(), as_json=False)
        text = capsys.readouterr().out
        lines = {line.split("│")[2].strip(): line for line in text.splitlines() if "│" in line}
        assert f"{busy}-1" in lines["1"]
        assert "no owner" in lines["2"]
        assert f"member without partitions: {idle} (white_list)" in text


async def test_offsets_of_both_stores_are_shown_with_the_lag_of_the_larger(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.commit_to_kafka({1: 7, 2: 5})
    reported = await described(world, capsys, "dual")
    assert rows(reported, "partition", "zookeeper_offset", "kafka_offset", "lag") == [
        (1, 4, 7, 3),
        (2, None, 5, 15),
    ]
    reported = await described(world, capsys, "kafka")
    assert rows(reported, "partition", "zookeeper_offset", "kafka_offset", "lag") == [
        (1, None, 7, 3),
        (2, None, 5, 15),
    ]


async def test_markup_and_invalid_registrations_of_others_are_shown_as_text(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        world.member("[red]odd[green]\N{NO-BREAK SPACE}", {world.topic: 1}, owning={0: 0}),
        world.member("broken", "no subscription"),
    ):
        await listing.describe(world.config(), as_json=False)
        out, err = capsys.readouterr()
        assert "_[red]odd[green]\N{REPLACEMENT CHARACTER}-0" in out
        assert "a registration needs a pattern and a subscription" in err


async def test_zookeeper_offsets_are_shown_though_brokers_are_unreachable(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncconsumer.cli.cluster_access._TIMEOUT_MS", 1)
    reported = await described(world, capsys, "zookeeper", bootstrap_servers="127.0.0.1:1")
    assert rows(reported, "partition", "zookeeper_offset", "end_offset") == [(1, 4, None)]
    assert "end offsets and offsets in Kafka are not available" in reported["notes"][0]


async def test_the_error_for_a_missing_group_names_the_most_similar_one(world: World) -> None:
    with pytest.raises(ConfigError, match="There is no group 'nobody' in ZooKeeper at"):
        await listing.describe(world.config(group_id="nobody"), as_json=True)
    wrong = f"{world.group}x"
    with pytest.raises(ConfigError, match=f"Did you mean {world.group!r}"):
        await listing.describe(world.config(group_id=wrong), as_json=True)


@pytest.mark.parametrize("by_zookeeper", [True, False])
async def test_topics_are_listed_from_zookeeper_or_from_brokers(
    world: World, by_zookeeper: bool
) -> None:
    config = world.config(bootstrap_servers="" if by_zookeeper else world.kafka.bootstrap_servers)
    async with open_zookeeper(config) as session, open_cluster(config, session) as cluster:
        assert world.topic in await cluster.topic_names()
        assert await cluster.partitions([world.topic, "none"]) == {world.topic: (0, 1, 2)}


async def test_the_error_for_an_ensemble_without_brokers_names_the_listener(world: World) -> None:
    async with world.session() as session:
        await ensure_path(session, f"/{world.group}")
    config = world.config(zookeeper_connect=f"{world.kafka.zookeeper_connect}/{world.group}")
    async with open_zookeeper(config) as session:
        with pytest.raises(ConfigError, match="No broker with a PLAINTEXT listener"):
            async with open_cluster(config, session):
                pass


# --- reset -------------------------------------------------------------------------------------


async def reset(world: World, to: str, *topics: str, storage: str = "zookeeper") -> dict[int, int]:
    """Reset offsets, and return the offsets in ZooKeeper."""
    named = topics or (world.topic,)
    await changes.reset(world.config(storage), named, to, CONFIRMED)
    return await world.in_zookeeper()


@pytest.mark.parametrize(
    ("to", "then"),
    [
        ("earliest", {0: 0, 1: 2, 2: 0}),
        ("latest", {0: 0, 1: 10, 2: 20}),
        ("5", {0: 0, 1: 5, 2: 5}),
        ("15", {0: 0, 1: 10, 2: 15}),
        ("1", {0: 0, 1: 2, 2: 1}),
        ("1970-01-01T00:00:01.007Z", {0: 0, 1: 7, 2: 7}),
        ("1970-01-01T00:00:01.012Z", {0: 0, 1: 10, 2: 12}),
    ],
)
async def test_offsets_are_reset_within_the_log(
    world: World, to: str, then: dict[int, int]
) -> None:
    await delete_records(world.kafka, world.topic, 1, 2)  # the log of the second begins at 2
    assert await reset(world, to) == then


async def test_all_committed_offsets_are_reset_by_default(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.commit({2: 3})
    await changes.reset(world.config(), [], "+2", CONFIRMED)
    assert await world.in_zookeeper() == {1: 6, 2: 5}
    capsys.readouterr()
    with pytest.raises(typer.Exit):
        await changes.reset(
            world.config(), [], "1h", Confirmation(yes=False, force=False, as_json=True)
        )
    plan = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["before"], row["after"]) for row in plan] == [
        (1, 6, 10),  # the records are older than an hour
        (2, 5, 20),
    ]
    await world.commit_to_kafka({1: 9})
    await changes.reset(world.config("kafka"), [], "earliest", CONFIRMED)
    assert await world.in_kafka() == {1: 0}
    other = world.config(group_id=f"{world.group}-other")
    async with world.session() as session:
        await ensure_path(session, GroupPaths(other.group_id).ids)
    with pytest.raises(ConfigError, match="has no committed offsets to reset"):
        await changes.reset(other, [], "earliest", CONFIRMED)


async def test_offsets_are_reset_to_given_values(world: World) -> None:
    offsets = {world.partition(0): 0, world.partition(2): 30}
    await changes.reset(world.config(), [], offsets, CONFIRMED)
    assert await world.in_zookeeper() == {0: 0, 1: 4, 2: 20}
    await changes.reset(world.config(), [f"{world.topic}:2"], {world.partition(2): 7}, CONFIRMED)
    assert await world.in_zookeeper() == {0: 0, 1: 4, 2: 7}


async def test_only_named_partitions_are_reset(world: World) -> None:
    assert await reset(world, "latest", f"{world.topic}:2") == {1: 4, 2: 20}
    assert await reset(world, "+3", f"{world.topic}:1") == {1: 7, 2: 20}
    assert await reset(world, "-4", f"{world.topic}:1,2") == {1: 3, 2: 16}
    with pytest.raises(ConfigError, match=r"\[0\] has no committed offset to count from"):
        await reset(world, "-1")
    with pytest.raises(UnknownTopicOrPartition):
        await reset(world, "latest", f"{world.topic}:3")
    assert await world.in_zookeeper() == {1: 3, 2: 16}


async def test_without_yes_only_the_plan_is_shown(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        await changes.reset(world.config(), [f"{world.topic}:1"], "100", DRY_RUN)
    assert ended.value.exit_code == 1
    assert await world.in_zookeeper() == {1: 4}
    out, err = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if world.topic in line]
    assert [part.strip() for part in line.split("│")[2:6]] == [
        "1",
        "4",
        "10",
        "100 is outside the log, 0 to 10",
    ]
    assert "nothing was changed" in err


async def test_a_reset_of_a_group_with_live_members_needs_force(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world.member("a", {world.topic: 1}) as name:
        with pytest.raises(ConfigError, match=rf"has live members \({name}\)"):
            await reset(world, "latest")
        assert await world.in_zookeeper() == {1: 4}
        await changes.reset(world.config(), [world.topic], "latest", FORCED)
        assert await world.in_zookeeper() == {0: 0, 1: 10, 2: 20}
        assert f"the group has live members ({name})" in capsys.readouterr().err


async def test_both_stores_are_reset_together(world: World) -> None:
    await world.commit_to_kafka({1: 9})
    assert (await reset(world, "2", f"{world.topic}:1", storage="dual")) == {1: 2}
    assert await world.in_kafka() == {1: 2}
    await world.commit_to_kafka({1: 1})  # ZooKeeper's offset is larger, and is loaded
    assert (await reset(world, "2", f"{world.topic}:1", storage="dual")) == {1: 2}
    assert await world.in_kafka() == {1: 2}
    assert (await reset(world, "5", f"{world.topic}:1", storage="kafka")) == {1: 2}
    assert await world.in_kafka() == {1: 5}


async def test_a_concurrent_commit_during_a_reset_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = changes._verify

    async def late(*arguments: Any) -> None:
        await world.commit({1: 6})
        await verify(*arguments)

    monkeypatch.setattr(changes, "_verify", late)
    with pytest.raises(ConcurrentCommit, match=r"in zookeeper was set to 10, and is 6 now"):
        await reset(world, "latest", f"{world.topic}:1")


# --- migrate -----------------------------------------------------------------------------------


async def test_migrate_copies_offsets_that_are_larger_than_those_of_the_target(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await world.commit({0: 0, 2: 8})
    await world.commit_to_kafka({1: 6, 2: 3})
    with pytest.raises(typer.Exit):
        await changes.migrate(world.config(), "zookeeper", "kafka", DRY_RUN)
    assert await world.in_kafka() == {1: 6, 2: 3}
    await changes.migrate(world.config(), "zookeeper", "kafka", CONFIRMED)
    assert await world.in_kafka() == {0: 0, 1: 6, 2: 8}
    assert await world.in_zookeeper() == {0: 0, 1: 4, 2: 8}
    capsys.readouterr()
    await changes.migrate(world.config(), "zookeeper", "kafka", DRY_RUN)
    assert "there is nothing to change" in capsys.readouterr().err

    await changes.migrate(world.config(), "kafka", "zookeeper", CONFIRMED)
    assert await world.in_zookeeper() == {0: 0, 1: 6, 2: 8}


async def test_migrate_needs_two_stores_and_a_group_without_live_members(world: World) -> None:
    with pytest.raises(ConfigError, match="Name two different stores"):
        await changes.migrate(world.config(), "kafka", "kafka", CONFIRMED)
    async with world.member("a", {world.topic: 1}):
        with pytest.raises(ConfigError, match="has live members"):
            await changes.migrate(world.config(), "zookeeper", "kafka", CONFIRMED)
