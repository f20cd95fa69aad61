"""Offsets in a store of the user's own: the README's, beside the results, in one transaction."""

import asyncio
import re
import sqlite3
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from asyncconsumer import TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from tests.consumer.real import consumer, send
from tests.helpers import until
from tests.test_readme import PROGRAMS

if TYPE_CHECKING:
    from asyncconsumer.offsets.store import OffsetStore


def beside(database: sqlite3.Connection) -> "OffsetStore":
    """The store of the README's example."""
    (program,) = (one for one in PROGRAMS if "class Beside" in one)
    found = re.search(r"class Beside.*?(?=\n\n\n)", program, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"sqlite3": sqlite3, "TopicPartition": TopicPartition}
    exec(found[0], names)
    store: OffsetStore = names["Beside"](database)
    return store


async def insert(database: sqlite3.Connection, kafka: KafkaHandle, topic: str, group: str) -> None:
    """What the README's loop does, with a moment more in which it can be cancelled."""
    options = {"group_id": group, "offsets": beside(database), "enable_auto_commit": False}
    async with consumer(kafka, topic, revoke_grace_ms=0, **options) as one:
        async for record in one:
            database.execute("INSERT INTO results VALUES (?)", (record.value,))
            await asyncio.sleep(0)
            place = TopicPartition(record.topic, record.partition)
            if not await one.commit({place: record.offset + 1}):
                database.rollback()


async def test_each_result_is_there_once_however_often_it_is_cut_short(
    kafka: KafkaHandle, tmp_path: Path
) -> None:
    topic, group, chance = await kafka.topic(partitions=2), kafka.group(), Random(5)
    await send(kafka, topic, range(300), 2)
    with sqlite3.connect(tmp_path / "results.db") as database:
        database.execute("CREATE TABLE results (value)")

        def results() -> list[int]:
            rows = database.execute("SELECT value FROM results").fetchall()
            return sorted(int(value) for (value,) in rows)

        while len(results()) < 300:
            enough = min(300, len(results()) + chance.randrange(1, 60))
            inserting = asyncio.get_running_loop().create_task(
                insert(database, kafka, topic, group)
            )
            await until(lambda enough=enough: len(results()) >= enough)  # type: ignore[misc]
            inserting.cancel()
            await asyncio.wait({inserting})
            database.rollback()
        assert results() == list(range(300))
    database.close()
