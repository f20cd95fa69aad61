"""The offset store of docs/acknowledgement.md: offsets and results in one transaction."""

import asyncio
import re
import sqlite3
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from asyncconsumer import TopicPartition
from asyncconsumer.testing.handles import KafkaHandle
from tests.project.test_readme import DOCUMENTS
from tests.support.helpers import until
from tests.support.real_consumer import make_consumer, send

if TYPE_CHECKING:
    from asyncconsumer.offsets.store import OffsetStore


def documented_store(database: sqlite3.Connection) -> "OffsetStore":
    """Return the store of the example in docs/acknowledgement.md."""
    page = DOCUMENTS["docs/acknowledgement.md"]
    source = re.search(r"class DatabaseOffsets.*?(?=\n\n\n)", page, re.DOTALL)
    assert source is not None
    names: dict[str, Any] = {"sqlite3": sqlite3, "TopicPartition": TopicPartition}
    exec(source[0], names)
    store: OffsetStore = names["DatabaseOffsets"](database)
    return store


async def insert(database: sqlite3.Connection, kafka: KafkaHandle, topic: str, group: str) -> None:
    """Run the loop of the example, with one more await at which it can be cancelled."""
    options = {
        "group_id": group,
        "offsets": documented_store(database),
        "enable_auto_commit": False,
    }
    async with make_consumer(kafka, topic, revoke_grace_ms=0, **options) as consumer:
        async for record in consumer:
            database.execute("INSERT INTO results VALUES (?)", (record.value,))
            await asyncio.sleep(0)
            place = TopicPartition(record.topic, record.partition)
            if not await consumer.commit({place: record.offset + 1}):
                database.rollback()


async def test_each_result_is_written_once_though_the_loop_is_cancelled(
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
