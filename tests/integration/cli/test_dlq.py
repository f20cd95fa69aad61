"""`asyncconsumer dlq` on real Kafka, with the dead letters of a real app."""

import json
from pathlib import Path
from typing import Any

import pytest

from asyncconsumer import SimpleConsumer
from asyncconsumer.testing.handles import KafkaHandle
from tests.handlers.test_replay import Shop
from tests.integration.cli.test_kafka_groups import run
from tests.integration.handlers.test_replay import forge
from tests.support.helpers import until
from tests.support.real_apps import read, send


@pytest.fixture
async def shop(kafka: KafkaHandle) -> Shop:
    """Return an app with 5 records in 2 partitions. The values 1, 3 and 4 are dead letters."""
    shop = Shop(kafka, await kafka.topic(partitions=2), await kafka.topic(partitions=2))
    shop.bad.add(b"4")
    await send(kafka, shop.topic, range(5), keys=2)
    async with shop.app():
        await read(kafka, shop.dead, 3)
        await until(lambda: len(shop.seen) == 2)
    return shop


async def dlq(shop: Shop, command: str, *arguments: str, code: int = 0) -> str:
    servers = ("-b", shop.kafka.bootstrap_servers)
    return await run("dlq", command, shop.dead, *arguments, *servers, code=code)


async def listed(shop: Shop, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(await dlq(shop, "list", "--json", *arguments))
    return rows


async def values(shop: Shop, *arguments: str) -> list[str]:
    return sorted([row["value"] for row in await listed(shop, *arguments)])


async def sent(shop: Shop) -> list[tuple[bytes | None, bytes | None, Any]]:
    """Return key, value and headers of the records after the first 5, sorted by value."""
    records = []
    async with SimpleConsumer(shop.kafka.bootstrap_servers) as simple:
        for partition in (0, 1):
            end = await simple.offsets_before(shop.topic, partition)
            if end:
                stream = simple.read(shop.topic, partition, end=end)
                records += [(each.key, each.value, each.headers) async for each in stream]
    for number in range(5):
        records.remove((b"%d" % (number % 2), b"%d" % number, ()))
    return sorted(records, key=lambda record: record[1] or b"")


async def test_dead_letters_are_filtered_listed_and_shown(shop: Shop) -> None:
    assert await values(shop) == ["1", "3", "4"]
    assert await values(shop, "--key", "0") == ["4"]
    assert await values(shop, "--error", "ValueError: b'[13]'") == ["1", "3"]
    assert await values(shop, "--handler", "nobody") == []
    handler = (await listed(shop))[0]["handler"]
    assert await values(shop, "--handler", handler) == ["1", "3", "4"]
    assert await values(shop, "--older-than", "1h") == []
    assert await values(shop, "--newer-than", "1h") == ["1", "3", "4"]
    assert len(await listed(shop, "--limit", "2")) == 2
    (row,) = await listed(shop, "--error", "'3'")
    assert (row["topic"], row["key"], row["error_type"]) == (shop.topic, "1", "builtins.ValueError")
    shown = await dlq(shop, "show", row["dead_letter"])
    assert "error_message:  b'3'" in shown
    assert "value:          3" in shown
    await dlq(shop, "show", "0:99", code=2)
    assert "ValueError" in await dlq(shop, "list")


async def test_selected_dead_letters_are_sent_back_once(shop: Shop) -> None:
    back = ("replay", "--source", shop.topic)
    await dlq(shop, *back, "--error", "'3'", code=1)
    assert await sent(shop) == []
    await dlq(shop, *back, "--error", "'3'", "--yes")
    assert await sent(shop) == [(b"1", b"3", ())]
    assert await values(shop) == ["1", "4"]
    await dlq(shop, *back, "--error", "'3'", "--yes")
    await dlq(shop, *back, "--yes")
    assert [value for _, value, _ in await sent(shop)] == [b"1", b"3", b"4"]
    assert await values(shop) == []


async def test_replay_writes_only_to_the_named_source_topics(shop: Shop) -> None:
    """Check that a forged dead letter cannot choose a topic with the rights of the operator."""
    payments = await shop.kafka.topic()
    await forge(shop, topic=payments)
    assert len(await listed(shop)) == 4
    await dlq(shop, "replay", "--yes", code=2)
    await dlq(shop, "replay", "--source", shop.topic, "--yes")
    assert [value for _, value, _ in await sent(shop)] == [b"1", b"3", b"4"]
    async with SimpleConsumer(shop.kafka.bootstrap_servers) as simple:
        assert await simple.offsets_before(payments, 0) == 0
    (remaining,) = await listed(shop)
    assert remaining["topic"] == payments


async def test_dead_letters_can_be_edited_before_they_are_sent_back(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(
        """#!/bin/sh\nsed -i -e '/"value": "1"/d' -e 's/"value": "3"/"value": "33"/' "$1"\n"""
    )
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    back = ("replay", "--source", shop.topic, "--key", "1", "--edit", "--yes")
    (row,) = json.loads(await dlq(shop, *back, "--json"))
    assert row["value"] == "33"
    assert await sent(shop) == [(b"1", b"33", ())]
    assert await values(shop) == ["1", "4"]
    editor.write_text("""#!/bin/sh\necho '{"dead_letter": "9:9"}' > "$1"\n""")
    await dlq(shop, "replay", "--source", shop.topic, "--edit", "--yes", code=2)
    assert await values(shop) == ["1", "4"]


async def test_dead_letters_are_exported_and_dropped(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    await dlq(shop, "export", "--output", str(file))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["value"] for row in rows) == ["1", "3", "4"]
    assert await dlq(shop, "export") == file.read_text()
    (place,) = [row["dead_letter"] for row in rows if row["value"] == "4"]
    plan = json.loads(await dlq(shop, "drop", "--place", place, "--json", code=1))
    assert [row["dead_letter"] for row in plan] == [place]
    assert len(await values(shop)) == 3
    await dlq(shop, "drop", "--place", place, "--yes")
    assert await values(shop) == ["1", "3"]
    await dlq(shop, "drop", "--yes")
    assert await values(shop) == []
    assert await sent(shop) == []
    await dlq(shop, "list", "--error", "(", code=2)
    await dlq(shop, "list", "--older-than", "soon", code=2)
