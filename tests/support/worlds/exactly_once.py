"""Exactly-once apps on a fake Kafka: members, brokers and transactions that fail at random."""

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from asyncconsumer import Producer, Record, TopicPartition
from asyncconsumer.config import ProducerConfig
from asyncconsumer.errors import NoBrokerAnswered
from asyncconsumer.protocol.produce import INIT_PRODUCER_ID, PRODUCE
from asyncconsumer.protocol.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)
from asyncconsumer.testing.fake_kafka.broker import Fate
from asyncconsumer.testing.fake_kafka.codes import COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR
from asyncconsumer.testing.fake_kafka.complete import CompleteCluster
from tests.support.worlds.handlers import Member, make_app, until

SOURCE, SINK, PARTITIONS, KEYS = "t", "out", 3, 8
STEPS: Final = 20
TRANSACTION_APIS: Final = ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, INIT_PRODUCER_ID
APIS: Final = (*TRANSACTION_APIS, TXN_OFFSET_COMMIT, PRODUCE)


class Process(Member):
    """A member of the group that can leave or crash."""

    def __init__(self, cluster: CompleteCluster, name: str) -> None:
        super().__init__(cluster)
        self.name = name
        self.leaving = asyncio.Event()

    def crash(self) -> None:
        """Lose the network and stop, so that the group sees a crash."""
        self.disconnect()
        self.leaving.set()


class ExactlyOnceWorld:
    """Members that join, leave, crash and lose their network, and transactions that fail."""

    def __init__(self, seed: int, cluster: CompleteCluster, group: asyncio.TaskGroup) -> None:
        self.chance = Random(seed)
        self.cluster = cluster
        self.group = group
        self.named = self.chance.random() < 0.5
        self.ordering: Any = self.chance.choice(["partition", "key"])
        self.processes: list[Process] = []
        self.sent = 0
        self._names = 0

    def start(self, name: str | None = None) -> None:
        """Start a member, which may have the name of one that has crashed."""
        if name is None:
            self._names += 1
            name = f"m-{self._names}"
        process = Process(self.cluster, name)
        self.processes.append(process)
        self.group.create_task(self._run(process, self.chance.randrange(10**6)))

    async def _run(self, process: Process, seed: int) -> None:
        app = make_app(
            self.cluster,
            seed,
            opener=process.open,
            shutdown_grace_ms=200,
            exactly_once=True,
            transactional_id=process.name if self.named else None,
            auto_commit_interval_ms=None,
        )
        chance = Random(seed)

        @app.handler(SOURCE, publish=SINK, ordering=self.ordering, concurrency=5, max_in_flight=60)
        async def handle(record: Record) -> bytes | None:
            await asyncio.sleep(chance.expovariate(10))
            return record.value

        with suppress(NoBrokerAnswered):  # the member lost its network during the start
            async with app:
                await process.leaving.wait()

    async def send(self, producer: Producer, count: int) -> None:
        """Send numbered records to the source topic."""
        for number in range(self.sent, self.sent + count):
            await producer.send(SOURCE, b"%d" % number, key=b"%d" % (number % KEYS))
        await producer.flush()
        self.sent += count

    def results(self) -> list[Record]:
        """Return the results that a read_committed reader sees."""
        return [*self.cluster.committed_records(TopicPartition(SINK, 0))]

    def check(self) -> None:
        """Check that no result is repeated or out of the order of its key."""
        numbers = defaultdict[bytes | None, list[int]](list)
        for record in self.results():
            numbers[record.key].append(int(record.value or b""))
        for key, results in numbers.items():
            repeated = [number for number, count in Counter(results).items() if count > 1]
            assert not repeated, f"key {key!r}: repeated results {repeated}"
            assert results == sorted(results), f"key {key!r}: {results}"

    def is_done(self) -> bool:
        return len(self.results()) >= self.sent

    def reconnect_all(self) -> None:
        """Restore the network of all members."""
        for process in self.processes:
            process.online = True

    def fail_something(self) -> None:
        """Let a member, a broker, a coordinator or a transaction fail, or repair something."""
        chance, cluster = self.chance, self.cluster
        broker = chance.choice([1, 2, 3])
        weights: dict[Any, int] = {
            self._fail_member: 10,
            self._fail_transaction: 4,
            partial(cluster.kill, 1): 2,  # broker 1 coordinates the transactions
            partial(cluster.start, 1): 2,
            partial(cluster.move_coordinator, "g"): 1,
            partial(cluster.reset_connections, broker): 1,
        }
        chance.choices([*weights], [*weights.values()])[0]()

    def _fail_member(self) -> None:
        chance, processes = self.chance, self.processes
        what = chance.random()
        if what < 0.3 and len(processes) < 4:
            self.start()
        elif what < 0.5 and len(processes) > 1:
            processes.pop(0).leaving.set()
        elif what < 0.75 and processes:
            process = processes.pop(chance.randrange(len(processes)))
            process.crash()
            self.start(process.name)
        elif what < 0.9 and processes:
            chance.choice(processes).disconnect()
        else:
            self.reconnect_all()

    def _fail_transaction(self) -> None:
        chance, cluster = self.chance, self.cluster
        names = [*cluster.transactions.ids]
        if not self.named and names and chance.random() < 0.5:
            # a member without a name continues with a new epoch
            cluster.transactions.time_out(chance.choice(names))
        elif chance.random() < 0.5:
            fate = chance.choice([Fate.LOST_BEFORE, Fate.LOST_AFTER])
            cluster.lose_next(chance.choice(APIS).key, fate)
        else:
            code = chance.choice([COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR])
            cluster.fail_next(chance.choice(TRANSACTION_APIS).key, code)


async def run_schedule(seed: int) -> None:
    async with CompleteCluster(Random(seed), brokers=3, topic_partitions=None) as cluster:
        cluster.add_topic(SOURCE, PARTITIONS)
        cluster.add_topic(SINK)
        config = ProducerConfig.from_options(bootstrap_servers=cluster.bootstrap_servers)
        async with (
            Producer(
                config=config, randomness=Random(seed), opener=cluster.open, now_ms=cluster.now_ms
            ) as producer,
            asyncio.TaskGroup() as group,
        ):
            world = ExactlyOnceWorld(seed, cluster, group)
            world.start()
            for _ in range(STEPS):
                await world.send(producer, world.chance.randrange(15))
                world.fail_something()
                await asyncio.sleep(world.chance.expovariate(1))
                world.check()
            world.reconnect_all()
            cluster.start(1)
            cluster.forget_fates()
            cluster.forget_troubles()
            world.start()
            await until(world.is_done)
            world.check()
            for process in world.processes:
                process.leaving.set()
