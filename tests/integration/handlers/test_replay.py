"""Replay of dead letters: each is sent once to its original topic."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from asyncconsumer import TopicPartition
from asyncconsumer.handlers.replay import Replayed, ReplayOutcome, replay
from asyncconsumer.testing.handles import KafkaHandle
from tests.handlers.test_replay import Shop
from tests.support.helpers import until
from tests.support.real_apps import read, send

ROOT = Path(__file__).parents[3]
SHOP = """
from asyncconsumer import ConsumerApp, Record

app = ConsumerApp(bootstrap_servers={servers!r}, group_id={group!r})

@app.handler({topic!r}, dead_letter_topic={dead!r})
async def sell(record: Record) -> None: ...
"""


@pytest.fixture
async def shop(kafka: KafkaHandle) -> Shop:
    shop = Shop(kafka, await kafka.topic(partitions=2), await kafka.topic())
    await send(kafka, shop.topic, range(5), keys=2)
    async with shop.app():
        await read(kafka, shop.dead, 2)
        await until(lambda: len(shop.seen) == 3)
    return shop


async def test_replayed_dead_letters_are_handled_and_not_replayed_again(shop: Shop) -> None:
    kind = ReplayOutcome(shop.topic, "Shop.app.<locals>.sell", "builtins.ValueError")
    replayed = Replayed(Counter({kind: 2}), 0)
    assert await replay(shop.app(), send=False) == replayed
    assert await replay(shop.app(), send=True) == replayed
    assert await replay(shop.app(), send=True) == Replayed(Counter(), 0)
    shop.bad.clear()
    await shop.until_seen(5)
    again = sorted(shop.seen[3:], key=lambda record: record.value or b"")
    assert [(record.value, record.key, record.headers) for record in again] == [
        (b"1", b"1", ()),
        (b"3", b"1", ()),
    ]


async def test_dead_letters_of_another_group_are_not_replayed(shop: Shop) -> None:
    shop.group = shop.kafka.group()
    assert await replay(shop.app(), send=True) == Replayed(Counter(), 2)


async def forge(shop: Shop, **reported: object) -> None:
    """Write a forged dead letter to the dead letter topic."""
    true = {"topic": shop.topic, "partition": 0, "offset": 1, "timestamp": 1, "group": shop.group}
    texts = {
        f"dlt.{name}": text if isinstance(text, bytes) else str(text).encode()
        for name, text in {**true, **reported}.items()
    }
    servers = shop.kafka.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(shop.dead, b"pay mallory", headers=list(texts.items()))


async def test_replay_writes_only_to_partitions_that_the_app_reads(shop: Shop) -> None:
    """Check that forged dead letters cannot choose a topic with the rights of the app."""
    payments = await shop.kafka.topic()
    await forge(shop, topic=payments)
    await forge(shop, topic=shop.dead)
    await forge(shop, topic="__consumer_offsets")
    await forge(shop, partition=2)
    await forge(shop, partition=-1)
    await forge(shop, topic=b"\xff")
    await forge(shop, handler=b"\xff", partition=1)  # malformed, but of this group
    done = await replay(shop.app(), send=True)
    assert (done.counts.total(), done.others) == (3, 6)
    async with AIOKafkaConsumer(bootstrap_servers=shop.kafka.bootstrap_servers) as consumer:
        ends = await consumer.end_offsets([TopicPartition(payments, 0)])
    assert list(ends.values()) == [0]


async def test_the_replay_command_sends_only_with_yes(shop: Shop, tmp_path: Path) -> None:
    names = {"topic": shop.topic, "dead": shop.dead, "group": shop.group}
    module = SHOP.format(servers=shop.kafka.bootstrap_servers, **names)
    (tmp_path / "shop.py").write_text(module)

    async def observed(*options: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from asyncconsumer.cli import main; main()"),
            *("replay", "shop:app", *options),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == code, output
        return output.decode()

    assert "nothing was sent; repeat the command with --yes" in await observed(code=1)
    output = await observed("--yes")
    assert "builtins.ValueError" in output
    assert "sent back 2 dead letters" in output
    assert "there are no dead letters to send back" in await observed("--yes")
