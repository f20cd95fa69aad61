"""Events and options of the Java consumer, without a process."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from asyncconsumer import ConfigError
from asyncconsumer.testing.servers import (
    JavaChange,
    JavaConsumer,
    JavaRecord,
    ServerError,
)
from asyncconsumer.testing.servers.java_consumer import _JavaMemberLog
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast


def partitions(topic: str, numbers: Iterable[int]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


def test_events_of_a_member_are_read_incrementally(tmp_path: Path) -> None:
    events, log = tmp_path / "events", _JavaMemberLog()
    log.read(events)  # does not exist yet
    record = '{"event":"record","topic":"t","partition":1,"offset":7,"key":"","value":null,'
    events.write_text('{"event":"assigned","partitions":{"t":[1,2]}}\n' + record)
    log.read(events)
    assert (log.owned, log.records) == (partitions("t", [1, 2]), [])

    with events.open("a") as file:
        file.write('"at_ms":5}\n{"event":"lost","partitions":{"t":[1]}}\n{"event":"ready"}\n')
        file.write('{"event":"commit failed","error":"why"}\n')
    log.read(events)
    assert log.records == [JavaRecord("t", 1, 7, b"", None, 5)]
    assert (log.owned, log.ready, log.failed_commits) == (partitions("t", [2]), True, ["why"])
    assert log.changes[-1] == JavaChange("lost", frozenset(partitions("t", [1])))


async def test_a_member_that_is_down_has_no_records_and_reports_errors() -> None:
    member = JavaConsumer("k:9092", "g", ["t"], name="a")
    assert repr(member) == "<JavaConsumer g_a, down>"
    assert (member.records, member.owned, member.changes) == ([], set(), [])
    with pytest.raises(ServerError, match="g_a, down> has not been started"):
        member.freeze()
    with pytest.raises(ServerError, match="g_a, down> did not meet the condition"):
        await member.until_received(1)
    await member.stop()
    await member.kill()


def test_invalid_subscriptions_are_refused() -> None:
    with pytest.raises(ConfigError, match="subscribes to topics or to a pattern"):
        JavaConsumer("k:9092", "g")
    with pytest.raises(ConfigError, match="subscribes to topics or to a pattern"):
        JavaConsumer("k:9092", "g", ["t"], pattern="t.*")
    with pytest.raises(ConfigError, match="topics must be a list of names, got the text 't'"):
        JavaConsumer("k:9092", "g", "t")
