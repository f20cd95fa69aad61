"""Events and options of the Scala consumer, without a process."""

from pathlib import Path

import pytest

from asyncconsumer import ConfigError
from asyncconsumer.testing.servers import (
    ScalaConsumer,
    ScalaRecord,
    ServerError,
)
from asyncconsumer.testing.servers.scala import _ScalaMemberLog
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast


def test_events_of_a_member_are_read_incrementally(tmp_path: Path) -> None:
    events, log = tmp_path / "events", _ScalaMemberLog()
    log.read(events)  # does not exist yet
    record = '{"event":"record","topic":"t","partition":1,"offset":7,"key":null,"value":"6869",'
    events.write_text('{"event":"starting","owners":{"t":{"1":"g_a-0"}}}\n' + record)
    log.read(events)
    assert (log.owners, log.records) == ({TopicPartition("t", 1): "g_a-0"}, [])

    with events.open("a") as file:
        file.write('"stream":0,"at_ms":5}\n{"event":"releasing","partitions":{"t":[1]}}\n')
    log.read(events)
    assert log.records == [ScalaRecord("t", 1, 7, None, b"hi", 0, 5)]
    assert (log.owners, log.releases) == ({}, [{TopicPartition("t", 1)}])


async def test_a_member_that_is_down_has_no_records_and_reports_errors() -> None:
    member = ScalaConsumer("zk:2181", "g", {"t": 1}, name="a")
    assert repr(member) == "<ScalaConsumer g_a, down>"
    assert (member.records, member.owned, member.releases) == ([], {}, [])
    with pytest.raises(ServerError, match="g_a, down> has not been started"):
        member.freeze()
    with pytest.raises(ServerError, match="g_a, down> did not meet the condition"):
        await member.until_received(1)
    await member.stop()
    await member.kill()


def test_invalid_subscriptions_are_refused() -> None:
    with pytest.raises(ConfigError, match="pattern must be one of static, white_list, black_list"):
        ScalaConsumer("zk:2181", "g", {"t": 1}, pattern="whitelist")
    with pytest.raises(ConfigError, match="`streams` has 0 entries: give topics, or one filter"):
        ScalaConsumer("zk:2181", "g", {})
    with pytest.raises(ConfigError, match="`streams` has 2 entries"):
        ScalaConsumer("zk:2181", "g", {"a": 1, "b": 1}, pattern="white_list")
