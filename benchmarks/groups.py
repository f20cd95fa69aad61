"""The speed of rebalances in ZooKeeper groups, and the duplicates after a frozen member.

    python -m benchmarks.groups [--quick] [--json] [--rounds N] [--case NAME ...]

Members of asyncconsumer and of Kafka's Scala consumer run on real servers, each in a process of its
own, in interleaved rounds. If a promised limit is exceeded, the output says so.

moves: 8 partitions, two members, a backoff of 1 s. "join" is the time from the registration of the
second member to the last claim. "leave" is the time from the signal to stop it to the last claim.
The times are those of ZooKeeper's clock.

freeze: 4 partitions and a steady producer. A member is frozen for longer than its session timeout,
beside a Scala member, and then resumed. The figures are the duplicates in percent of the sent
records, and the number of records that the member delivered while the other one owned them.

large: members without brokers, in two processes, with 10 partitions each. One more member joins.
The figures are the time from its registration to the last claim, and the requests of all members.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final, NamedTuple, TypeAlias

from aiokafka import AIOKafkaProducer

from asyncconsumer.config import ZooKeeperConfig
from asyncconsumer.group.zookeeper.assignors import GroupInfo, GroupMemberInfo, by_range
from asyncconsumer.testing.servers import LAST_WITH_ZOOKEEPER, Kafka, ScalaConsumer, ZooKeeper
from asyncconsumer.types import TopicPartition
from asyncconsumer.zookeeper.paths import GroupPaths
from asyncconsumer.zookeeper.requests import ZnodeData
from asyncconsumer.zookeeper.session import ZooKeeperSession
from benchmarks import _group_crowd
from benchmarks._child import Figures
from benchmarks._harness import arguments, note, print_lines
from tests.support.connector_process import OwnConsumer

ASYNCCONSUMER, SCALA = "asyncconsumer", "Scala's"
KINDS: Final[dict[str, type[ScalaConsumer]]] = {ASYNCCONSUMER: OwnConsumer, SCALA: ScalaConsumer}
PROMISED: Final = {
    ("join", ASYNCCONSUMER, "s"): 1.5,
    ("leave", ASYNCCONSUMER, "s"): 0.3,
    ("freeze", ASYNCCONSUMER, "duplicates_percent"): 2.0,
    ("freeze", ASYNCCONSUMER, "late"): 0.0,
    ("large", "200 members, 2,000 partitions", "join_s"): 10.0,
}
BETWEEN_RECORDS: Final = 1 / 300

Found: TypeAlias = dict[tuple[str, str], list[Figures]]
"""The figures of all rounds, by case and contender."""


class Row(NamedTuple):
    """One metric of one contender in one case."""

    case: str
    contender: str
    metric: str
    median: float
    worst: float
    rounds: int
    limit: float | None

    @property
    def missed(self) -> bool:
        return self.limit is not None and self.median > self.limit

    def as_json(self) -> dict[str, object]:
        rounded = {"median": round(self.median, 4), "worst": round(self.worst, 4)}
        return {"bench": "groups", **self._asdict(), **rounded}


class Scene(NamedTuple):
    """The servers, and a ZooKeeper session with which the benchmark watches the members."""

    kafka: Kafka
    zookeeper: ZooKeeper
    session: ZooKeeperSession

    def member(
        self, kind: str, group: str, topic: str, name: str, **settings: str
    ) -> ScalaConsumer:
        properties = {key.replace("_", "."): value for key, value in settings.items()}
        return KINDS[kind](
            self.zookeeper.connect, group, {topic: 1}, name=name, properties=properties
        )

    async def owners(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[str, ZnodeData]:
        """Return the existing owner znodes of these partitions, by path."""
        paths = [GroupPaths(group).owner(tp) for tp in partitions]
        nodes = await self.session.get_many(paths)
        return {path: node for path, node in zip(paths, nodes, strict=True) if node is not None}

    async def settled(
        self, group: str, partitions: Sequence[TopicPartition], *members: ScalaConsumer
    ) -> dict[TopicPartition, int]:
        """Wait until these members own the partitions, as the range assignor divides them.

        Return the time at which each partition was claimed, in ms by ZooKeeper's clock.
        """
        topic = partitions[0].topic
        expected = by_range(
            GroupInfo(
                [GroupMemberInfo(consumer.consumer_id, {topic: 1}) for consumer in members],
                {topic: range(len(partitions))},
            )
        )
        async with asyncio.timeout(120):
            while True:
                nodes = await self.owners(group, partitions)
                results = [(node.data or b"").decode() for node in nodes.values()]
                if results == [expected[tp] for tp in partitions]:
                    times = (node.stat.created for node in nodes.values())
                    return dict(zip(partitions, times, strict=True))
                await asyncio.sleep(0.01)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with (
        ZooKeeper() as zookeeper,
        Kafka(LAST_WITH_ZOOKEEPER, zookeeper=zookeeper.connect) as kafka,
        ZooKeeperSession(
            ZooKeeperConfig(zookeeper_connect=zookeeper.connect), randomness=Random()
        ) as session,
    ):
        yield Scene(kafka, zookeeper, session)


def now_ms() -> int:
    return time.time_ns() // 10**6


# --- the cases -----------------------------------------------------------------------------------


async def join_and_leave(scene: Scene, results: Found, rounds: int, *, quick: bool) -> None:
    """Measure how long a second member takes to join and to leave, for each pair of clients."""
    pairs = [
        (ASYNCCONSUMER, ASYNCCONSUMER),
        (SCALA, SCALA),
        (SCALA, ASYNCCONSUMER),
        (ASYNCCONSUMER, SCALA),
    ]
    for number in range(rounds or (1 if quick else 7)):
        for staying, coming in pairs[: 2 if quick else 4]:
            contender = coming if staying == coming else f"{coming} beside {staying}"
            joined, remaining = await _join_and_leave(
                scene, staying, coming, f"moves-{contender}-{number}"
            )
            results.setdefault(("join", contender), []).append({"s": joined})
            results.setdefault(("leave", contender), []).append({"s": remaining})
            note(f"  round {number + 1}: {contender}: join {joined:.3f} s, leave {remaining:.3f} s")


async def _join_and_leave(
    scene: Scene, staying: str, coming: str, name: str
) -> tuple[float, float]:
    topic = group = name.replace(" ", "-").replace("'", "")
    await scene.kafka.admin.create_topic(topic, partitions=8)
    partitions = [TopicPartition(topic, n) for n in range(8)]
    backoff = "1000"
    async with scene.member(staying, group, topic, "a", rebalance_backoff_ms=backoff) as first:
        await scene.settled(group, partitions, first)
        async with scene.member(coming, group, topic, "b", rebalance_backoff_ms=backoff) as second:
            claimed = await scene.settled(group, partitions, first, second)
            path = GroupPaths(group).member(second.consumer_id)
            registered = (await scene.session.get(path)).stat.created
            asked = now_ms()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(second.stop())
                reclaimed = await scene.settled(group, partitions, first)
    return (max(claimed.values()) - registered) / 1000, (max(reclaimed.values()) - asked) / 1000


async def freeze(scene: Scene, results: Found, rounds: int, *, quick: bool) -> None:
    """Measure duplicates after a member was frozen for longer than its session timeout."""
    for number in range(rounds or (1 if quick else 3)):
        for contender in (ASYNCCONSUMER, SCALA):
            figures = await _freeze(
                scene, contender, f"freeze-{KINDS[contender].__name__}-{number}"
            )
            results.setdefault(("freeze", contender), []).append(figures)
            message = ", ".join(f"{metric} {value:,.4g}" for metric, value in figures.items())
            note(f"  freeze, round {number + 1}: {contender}: {message}")


async def _freeze(scene: Scene, contender: str, topic: str) -> Figures:
    await scene.kafka.admin.create_topic(topic, partitions=4)
    partitions = [TopicPartition(topic, n) for n in range(4)]
    async with (
        scene.member(SCALA, topic, topic, "s") as other,
        scene.member(contender, topic, topic, "o") as frozen,
    ):
        await scene.settled(topic, partitions, other, frozen)
        async with _steadily(scene.kafka, topic) as sent:
            await frozen.until(lambda consumer: len(consumer.records) > 500)
            frozen.freeze()
            taken = await scene.settled(topic, partitions, other)
            enough = len(other.records) + 500
            await other.until(lambda consumer: len(consumer.records) > enough)
            frozen.thaw()
            regained = await scene.settled(topic, partitions, other, frozen)
            enough = len(frozen.records) + 500
            await frozen.until(lambda consumer: len(consumer.records) > enough)
        delivered: Counter[bytes | None] = Counter()

        def everything_came(_: ScalaConsumer) -> bool:
            nonlocal delivered
            delivered = Counter(record.value for record in (*frozen.records, *other.records))
            return delivered.keys() >= set(sent)

        await other.until(everything_came)
        late = sum(
            taken[tp] <= record.at_ms < regained[tp]
            for record in frozen.records
            if (tp := TopicPartition(record.topic, record.partition)) in taken
        )
    duplicates = delivered.total() - len(delivered)
    return {
        "sent": len(sent),
        "duplicates_percent": 100 * duplicates / len(sent),
        "late": late,
        "lost": len(set(sent) - delivered.keys()),
    }


@asynccontextmanager
async def _steadily(kafka: Kafka, topic: str) -> AsyncIterator[list[bytes]]:
    sent: list[bytes] = []
    leaving = asyncio.Event()

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            while not leaving.is_set():
                value = b"%d" % len(sent)
                await producer.send_and_wait(topic, value)
                sent.append(value)
                await asyncio.sleep(BETWEEN_RECORDS)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(produce())
        yield sent
        leaving.set()


async def large(scene: Scene, results: Found, rounds: int, *, quick: bool) -> None:
    """Measure the join and the leave of one more member in large groups."""
    for members in (50,) if quick else (50, 100, 200):
        contender = f"{members} members, {10 * members:,} partitions"
        async with _group_crowd.crowd(scene.session, scene.zookeeper.connect, members) as crowd:
            for number in range(rounds or (1 if quick else 3)):
                figures = await crowd.one_more()
                results.setdefault(("large", contender), []).append(figures)
                message = ", ".join(f"{metric} {value:,.5g}" for metric, value in figures.items())
                note(f"  large, round {number + 1}: {contender}: {message}")


CASES: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "moves": join_and_leave,
    "freeze": freeze,
    "large": large,
}


# --- running and printing ------------------------------------------------------------------------


async def measure(names: Sequence[str], rounds: int, *, quick: bool) -> list[Row]:
    result: Found = {}
    async with scene() as servers:
        for name in names:
            await CASES[name](servers, result, rounds, quick=quick)
    return [
        Row(
            case,
            contender,
            metric,
            statistics.median(values := [sample[metric] for sample in samples]),
            max(values),
            len(samples),
            PROMISED.get((case, contender, metric)),
        )
        for (case, contender), samples in result.items()
        for metric in samples[0]
    ]


def show(rows: Sequence[Row]) -> None:
    for case in dict.fromkeys(row.case for row in rows):
        print(f"\n{case}: the median, and the worst round")
        for row in rows:
            if row.case == case:
                promised = "" if row.limit is None else f"  (at most {row.limit:g})"
                missed = ": MISSED" if row.missed else ""
                figures = f"{row.median:>12,.4g}{row.worst:>12,.4g}"
                print(f"  {row.contender:32}{row.metric:22}{figures}{promised}{missed}")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--case", action="append", choices=list(CASES))
    options = parser.parse_args()
    rows = asyncio.run(measure(options.case or list(CASES), options.rounds, quick=options.quick))
    if not options.json:
        show(rows)
        return
    print_lines(row.as_json() for row in rows)


if __name__ == "__main__":
    main()
