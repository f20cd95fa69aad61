"""Dead letters are sent back, each once, to where they came from."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from asyncconsumer import ConfigError, ConsumerApp, Record, TopicPartition
from asyncconsumer.handlers.replay import Replayed, ReplayOutcome, replay
from asyncconsumer.testing.handles import KafkaHandle
from tests.helpers import until
from tests.work.real import app, read, send

ROOT = Path(__file__).parents[2]
SHOP = """
from asyncconsumer import ConsumerApp, Record

app = ConsumerApp(bootstrap_servers={servers!r}, group_id={group!r})

@app.handler({topic!r}, dead_letter_topic={dead!r})
async def sell(record: Record) -> None: ...
"""


class Shop:
    """An app that cannot deal with some values, until it can."""

    def __init__(self, kafka: KafkaHandle, topic: str, dead: str) -> None:
        self.kafka, self.topic, self.dead, self.group = kafka, topic, dead, kafka.group()
        self.bad = {b"1", b"3"}
        self.seen: list[Record] = []

    def app(self) -> ConsumerApp:
        one = app(self.kafka, group_id=self.group)

        @one.handler(self.topic, dead_letter_topic=self.dead)
        async def sell(record: Record) -> None:
            if record.value in self.bad:
                raise ValueError(record.value)
            self.seen.append(record)

        return one

    async def until_seen(self, count: int) -> None:
        async with self.app():
            await until(lambda: len(self.seen) == count)


@pytest.fixture
async def shop(kafka: KafkaHandle) -> Shop:
    one = Shop(kafka, await kafka.topic(partitions=2), await kafka.topic())
    await send(kafka, one.topic, range(5), keys=2)
    async with one.app():
        await read(kafka, one.dead, 2)
        await until(lambda: len(one.seen) == 3)
    return one


async def test_what_is_sent_back_is_handled_and_not_sent_again(shop: Shop) -> None:
    kind = ReplayOutcome(shop.topic, "Shop.app.<locals>.sell", "builtins.ValueError")
    found = Replayed(Counter({kind: 2}), 0)
    assert await replay(shop.app(), send=False) == found
    assert await replay(shop.app(), send=True) == found
    assert await replay(shop.app(), send=True) == Replayed(Counter(), 0)
    shop.bad.clear()
    await shop.until_seen(5)
    again = sorted(shop.seen[3:], key=lambda record: record.value or b"")
    assert [(one.value, one.key, one.headers) for one in again] == [
        (b"1", b"1", ()),
        (b"3", b"1", ()),
    ]


async def test_letters_of_others_stay_where_they_are(shop: Shop) -> None:
    shop.group = shop.kafka.group()
    assert await replay(shop.app(), send=True) == Replayed(Counter(), 2)


async def forge(shop: Shop, **told: object) -> None:
    """A letter that somebody wrote who may write to the topic of the letters."""
    true = {"topic": shop.topic, "partition": 0, "offset": 1, "timestamp": 1, "group": shop.group}
    texts = {
        f"dlt.{name}": text if isinstance(text, bytes) else str(text).encode()
        for name, text in {**true, **told}.items()
    }
    servers = shop.kafka.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(shop.dead, b"pay mallory", headers=list(texts.items()))


async def test_only_partitions_that_the_app_reads_are_written_to(shop: Shop) -> None:
    """Who may write letters must not write elsewhere with the rights of whoever sends them back."""
    payments = await shop.kafka.topic()
    await forge(shop, topic=payments)
    await forge(shop, topic=shop.dead)
    await forge(shop, topic="__consumer_offsets")
    await forge(shop, partition=2)
    await forge(shop, partition=-1)
    await forge(shop, topic=b"\xff")
    await forge(shop, handler=b"\xff", partition=1)  # odd, and meant for us
    done = await replay(shop.app(), send=True)
    assert (done.found.total(), done.others) == (3, 6)
    async with AIOKafkaConsumer(bootstrap_servers=shop.kafka.bootstrap_servers) as consumer:
        ends = await consumer.end_offsets([TopicPartition(payments, 0)])
    assert list(ends.values()) == [0]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("topic", "reads"),
    [("named", True), ("shop.eu", True), ("a.shop", False), ("__consumer_offsets", False)],
)
def test_which_topics_an_app_reads(topic: str, reads: bool) -> None:
    one = ConsumerApp(bootstrap_servers="k:1", group_id="g")

    async def handle(record: Record) -> None: ...

    one.handler("named")(handle)
    one.handler(pattern=r"shop\..*|__.*")(handle)
    assert one.reads(topic) is reads


async def test_on_the_command_line(shop: Shop, tmp_path: Path) -> None:
    names = {"topic": shop.topic, "dead": shop.dead, "group": shop.group}
    module = SHOP.format(servers=shop.kafka.bootstrap_servers, **names)
    (tmp_path / "shop.py").write_text(module)

    async def told(*options: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from asyncconsumer.cli import main; main()"),
            *("replay", "shop:app", *options),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output
        return output.decode()

    assert "nothing was sent back: give --yes" in await told()
    output = await told("--yes")
    assert "builtins.ValueError" in output
    assert "2 were sent back" in output
    assert "there is nothing to send back" in await told("--yes")


@pytest.mark.fast
async def test_without_a_topic_for_letters_there_are_none() -> None:
    one = ConsumerApp(bootstrap_servers="k:1", group_id="g")
    with pytest.raises(ConfigError, match="no handler of this app has a dead_letter_topic"):
        await replay(one, send=True)
