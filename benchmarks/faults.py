"""The time without records of asyncconsumer and aiokafka after a fault of a broker.

    python -m benchmarks.faults [--quick] [--json] [--case NAME ...] [--verbose]

A steady producer writes to six partitions of a real cluster of three brokers. Both consumers read
them, in one process, during the fault. The figure is the silence of a consumer: its longest time
without a delivery in a partition that the broker led.

No consumer can be faster than the cluster itself. The cluster's silence is the producer's longest
time without an acknowledgement. For a frozen broker it is the time until another broker leads. The
producer needs longer then, because it also has to find the new leader. For a lost network path it
is the time for which the path was lost.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as TheirPartition
from aiokafka.errors import KafkaError

from asyncconsumer.config import ConnectionConfig, EngineConfig, FetchConfig
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.fetch.manager import FetchManager
from asyncconsumer.protocol.messages import EARLIEST
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.proxy import TcpProxy
from asyncconsumer.testing.servers import PROXIED, Kafka
from asyncconsumer.testing.servers.kafka import Broker
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.types import TopicPartition
from benchmarks._harness import arguments, note, print_lines

PARTITIONS: Final = 6
BETWEEN_RECORDS: Final = 0.02
ASYNCCONSUMER, THEIRS, CLUSTER = "asyncconsumer", "aiokafka", "the cluster itself"
WRITER: Final = "the producer"


class Pulse:
    """The time of the last record of each partition, and the longest time without a record."""

    def __init__(self) -> None:
        self.count: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self._last: dict[int, float] = {}
        self._longest: dict[int, float] = {}

    def beat(self, partition: int) -> None:
        self._look(partition)
        self._last[partition] = asyncio.get_running_loop().time()
        self.count[partition] += 1

    def begin(self) -> None:
        """Reset the longest silences."""
        self._longest.clear()

    def silence(self, partitions: Iterable[int]) -> float:
        """Return the longest silence in seconds of these partitions, including a current one."""
        for partition in (requested := list(partitions)):
            self._look(partition)
        return max((self._longest.get(number, 0.0) for number in requested), default=0.0)

    def _look(self, partition: int) -> None:
        now = asyncio.get_running_loop().time()
        silent = now - self._last.get(partition, now)
        self._longest[partition] = max(self._longest.get(partition, 0.0), silent)


class Scene:
    """A topic that is written and read during a fault, and its cluster and proxies."""

    def __init__(
        self, kafka: Kafka, proxies: Mapping[int, TcpProxy], topic: str, *, quick: bool
    ) -> None:
        self.kafka = kafka
        self.proxies = proxies
        self.topic = topic
        self.quick = quick
        self.pulses = {ASYNCCONSUMER: Pulse(), THEIRS: Pulse(), CLUSTER: Pulse()}

    async def leader(self) -> tuple[Broker, list[int]]:
        """Return the broker that leads partition 0, and all partitions of the topic it leads."""
        leaders = [
            await self.kafka.admin.leader(self.topic, number) for number in range(PARTITIONS)
        ]
        led = [number for number, leader in enumerate(leaders) if leader == leaders[0]]
        return self.kafka.brokers[leaders[0]], led

    async def all_move(self, names: Iterable[str] = (ASYNCCONSUMER, THEIRS, CLUSTER)) -> None:
        """Wait until each contender in `names` has three more records of every partition."""
        enough = {
            name: {number: count + 3 for number, count in self.pulses[name].count.items()}
            for name in names
        }

        async def moved() -> bool:
            return all(
                self.pulses[name].count[number] >= count
                for name, counts in enough.items()
                for number, count in counts.items()
            )

        await until(moved)


class Outcome(NamedTuple):
    """The result of a fault: the affected partitions, and the cluster's silence in seconds.

    If `own` is None, the producer's silence is that of the cluster. A consumer may be silent
    for `allowed` seconds longer than the cluster.
    """

    concerned: list[int]
    own: float | None = None
    allowed: float = 1.0


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(180):
        while not await met():  # noqa: ASYNC110 - brokers do not report their state
            await asyncio.sleep(0.05)


# --- the faults ----------------------------------------------------------------------------------


async def kill(scene: Scene) -> Outcome:
    broker, led = await scene.leader()
    await broker.kill()
    await scene.all_move()
    await broker.start()
    await scene.all_move()
    return Outcome(led)


async def freeze(scene: Scene) -> Outcome:
    broker, led = await scene.leader()
    loop = asyncio.get_running_loop()
    began = loop.time()
    broker.pause()
    witness = scene.kafka.brokers[broker.node_id % 3 + 1]

    async def fenced() -> bool:
        leaders = {await witness.leader_of(scene.topic, number) for number in led}
        return leaders.isdisjoint((broker.node_id, -1))

    await until(fenced)
    own = loop.time() - began
    await asyncio.sleep((20 if scene.quick else 60) - own)
    broker.resume()
    await scene.kafka.wait_until_whole()
    await scene.all_move()
    return Outcome(led, own, 3.0)


async def roll(scene: Scene) -> Outcome:
    for broker in scene.kafka.brokers.values():
        await broker.restart()
        await scene.kafka.wait_until_whole()
        await scene.all_move()
    return Outcome(list(range(PARTITIONS)))


async def black_hole(scene: Scene) -> Outcome:
    broker, led = await scene.leader()
    proxy = scene.proxies[broker.node_id]
    seconds = 10.0 if scene.quick else 30.0
    proxy.black_hole()
    await asyncio.sleep(seconds)
    proxy.heal()
    await scene.all_move()
    return Outcome(led, seconds)


async def reset(scene: Scene) -> Outcome:
    for _ in range(5 if scene.quick else 20):
        for proxy in scene.proxies.values():
            proxy.reset()
        await asyncio.sleep(3)
    await scene.all_move()
    return Outcome(list(range(PARTITIONS)))


class Fault(NamedTuple):
    make: Callable[[Scene], Awaitable[Outcome]]
    proxied: bool = False


CASES: Final = {
    "leader killed": Fault(kill),
    "leader frozen": Fault(freeze),
    "rolling restart": Fault(roll),
    "way to a broker lost": Fault(black_hole, proxied=True),
    "connections reset": Fault(reset, proxied=True),
}


# --- writers and readers ------------------------------------------------------------------------


async def write(servers: str, topic: str, pulse: Pulse) -> None:
    # with the default timeouts, the producer would wait for a frozen broker for 40 s
    async with AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", request_timeout_ms=1000
    ) as producer:

        async def steadily(partition: int) -> None:
            while True:
                try:
                    await producer.send_and_wait(topic, b"x" * 100, partition=partition)
                except KafkaError:
                    continue
                pulse.beat(partition)
                await asyncio.sleep(BETWEEN_RECORDS)

        async with asyncio.TaskGroup() as group:
            for partition in range(PARTITIONS):
                group.create_task(steadily(partition))


async def read_asyncconsumer(servers: str, topic: str, pulse: Pulse) -> None:
    async with KafkaClient(ConnectionConfig(bootstrap_servers=servers), patience_ms=0) as session:
        manager = FetchManager(
            session.brokers, session.cluster, FetchConfig(), EngineConfig(), randomness=Random()
        )
        async with manager:
            channel = manager.channel()
            target = FetchTarget(channel, EARLIEST)
            manager.reconcile(
                {TopicPartition(topic, number): target for number in range(PARTITIONS)}
            )
            async for record in Stream(channel):
                pulse.beat(record.partition)


async def read_theirs(servers: str, topic: str, pulse: Pulse) -> None:
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TheirPartition(topic, number) for number in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        async for record in consumer:
            pulse.beat(record.partition)


# --- measuring -----------------------------------------------------------------------------------


class Result(NamedTuple):
    """The seconds for which each contender was silent in one case."""

    case: str
    seconds: Mapping[str, float]
    allowed: float

    def longer(self, contender: str) -> float:
        return self.seconds[contender] - self.seconds[CLUSTER]

    def lines(self) -> list[dict[str, object]]:
        results: list[dict[str, object]] = [
            {
                "bench": "faults",
                "case": self.case,
                "contender": contender,
                "metric": "silence_s",
                "seconds": round(seconds, 2),
                "longer_than_the_cluster_s": round(self.longer(contender), 2),
            }
            for contender, seconds in self.seconds.items()
        ]
        for against in (THEIRS, CLUSTER):
            ratio = self.seconds[against] / self.seconds[ASYNCCONSUMER]
            line = {"bench": "faults", "case": self.case, "against": against}
            results.append({**line, "metric": "silence_s", "ratio": round(ratio, 2)})
        return results

    def show(self) -> None:
        print(f"\n{self.case}")
        print(f"  {'':24}{'silent, s':>10}{'longer than the cluster, s':>30}")
        for contender, seconds in self.seconds.items():
            longer = "" if contender in (CLUSTER, WRITER) else f"{self.longer(contender):.2f}"
            print(f"  {contender:24}{seconds:>10.2f}{longer:>30}")
        retained = "kept" if self.longer(ASYNCCONSUMER) <= self.allowed else "MISSED"
        print(f"  at most {self.allowed:g} s longer than the cluster: {retained}")


async def measure(name: str, scene: Scene) -> Result:
    fault = CASES[name]
    servers = readers = scene.kafka.bootstrap_servers
    if fault.proxied:
        readers = ",".join(proxy.address for proxy in scene.proxies.values())
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(write(servers, scene.topic, scene.pulses[CLUSTER])),
            group.create_task(
                read_asyncconsumer(readers, scene.topic, scene.pulses[ASYNCCONSUMER])
            ),
            group.create_task(read_theirs(readers, scene.topic, scene.pulses[THEIRS])),
        ]
        await scene.all_move()
        for pulse in scene.pulses.values():
            pulse.begin()
        concerned, own, allowed = await fault.make(scene)
        seconds = {contender: pulse.silence(concerned) for contender, pulse in scene.pulses.items()}
        if own is not None:
            seconds[WRITER], seconds[CLUSTER] = seconds[CLUSTER], own
        for task in tasks:
            task.cancel()
    return Result(name, seconds, allowed)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Kafka, dict[int, TcpProxy]]]:
    async with Kafka(brokers=3, proxied=True) as kafka, AsyncExitStack() as stack:
        proxies = {}
        for node_id, listener in kafka.proxy_listeners.items():
            port = kafka.brokers[node_id].ports[PROXIED.name]
            proxy = TcpProxy(HOST, port, listener=listener)
            proxies[node_id] = await stack.enter_async_context(proxy)
        yield kafka, proxies


async def run(cases: Iterable[str], *, quick: bool) -> list[Result]:
    results = []
    async with cluster() as (kafka, proxies):
        for number, name in enumerate(cases):
            topic = f"faults-{number}"
            config = {"min.insync.replicas": "2"}
            await kafka.admin.create_topic(
                topic, partitions=PARTITIONS, replication_factor=3, config=config
            )
            results.append(await measure(name, Scene(kafka, proxies, topic, quick=quick)))
            message = ", ".join(
                f"{contender} {took:.2f} s" for contender, took in results[-1].seconds.items()
            )
            note(f"{name}: silent: {message}")
    return results


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--verbose", action="store_true", help="log what the engine notices")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL, format="%(asctime)s %(message)s")
    if options.verbose:
        logging.getLogger("asyncconsumer").setLevel(logging.INFO)
    for result in asyncio.run(run(options.case or list(CASES), quick=options.quick)):
        if options.json:
            print_lines(result.lines())
        else:
            result.show()


if __name__ == "__main__":
    main()
