"""The printer: streams, limits and commits."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from asyncconsumer import ConsumerError, CorruptRecords, TopicPartition
from asyncconsumer.cli.consume.format import Format
from asyncconsumer.cli.consume.printer import ConsumeOptions, Printer
from asyncconsumer.cli.consume.selection import RecordFilter
from asyncconsumer.errors import ConsumerRebalanceFailed
from asyncconsumer.records.decoding import Record

if TYPE_CHECKING:
    from asyncconsumer.streams.stream import Stream

pytestmark = pytest.mark.fast

ZERO = TopicPartition("t", 0)


class Chunk:
    """Records of a fetch. Optionally, each iteration ends with an error for a corrupt batch."""

    topic = "t"

    def __init__(
        self, offsets: Iterable[int], partition: int = 0, *, corrupt: bool = False
    ) -> None:
        self.partition = partition
        self._records = [Record("t", partition, offset, value=b"%d" % offset) for offset in offsets]
        self._corrupt = corrupt

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        if self._records:
            return self._records.pop(0)
        if self._corrupt:
            raise CorruptRecords("t", self.partition, 7, "for a test")
        raise StopIteration


class Source:
    """A fake stream. After its chunks and errors it ends or waits forever."""

    def __init__(self, *items: Chunk | ConsumerError, ends: bool = True) -> None:
        self._items = list(items)
        self._ends = ends
        self.done: dict[TopicPartition, int] = {}

    async def chunks(self) -> AsyncIterator[Any]:
        while self._items:
            item = self._items.pop(0)
            if isinstance(item, ConsumerError):
                raise item
            yield item
        if not self._ends:
            await asyncio.Event().wait()

    def finished(self) -> dict[TopicPartition, int]:
        return self.done


def make_printer(
    max_messages: int | None = None,
    timeout_ms: int | None = None,
    key: str | None = None,
    pattern: str | None = None,
) -> Printer:
    return Printer(
        ConsumeOptions(
            topics=["t"],
            streams=1,
            render=Format("%p:%s ").render,
            filter=RecordFilter(key, pattern),
            max_messages=max_messages,
            timeout_ms=timeout_ms,
            quiet=True,
        )
    )


async def printed(capture: pytest.CaptureFixture[str], printer: Printer, *sources: Source) -> str:
    await printer.run(cast("list[Stream]", sources))
    return capture.readouterr().out


def offsets_to_commit(printer: Printer, *sources: Source) -> dict[TopicPartition, int]:
    return printer.unfinished(cast("list[Stream]", sources))


async def test_printed_and_unacknowledged_records_are_to_be_committed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    printer, source = make_printer(), Source(Chunk([3, 4]), Chunk([9], 1), Chunk([]), Chunk([5, 7]))
    assert await printed(capfd, printer, source) == "0:3 0:4 1:9 0:5 0:7 "
    assert offsets_to_commit(printer, source) == {ZERO: 8, TopicPartition("t", 1): 10}
    source.done = {ZERO: 5, TopicPartition("t", 1): 12}  # 10 and 11 are no records
    assert offsets_to_commit(printer, source) == {ZERO: 8}
    printer.forget([ZERO])
    assert offsets_to_commit(printer, source) == {}


async def test_the_message_limit_counts_records_of_all_streams(
    capfd: pytest.CaptureFixture[str],
) -> None:
    printer = make_printer(max_messages=3)
    sources = [Source(Chunk([0, 1]), ends=False), Source(Chunk([0, 1], 1), ends=False)]
    out = await printed(capfd, printer, *sources)
    assert len(out.split()) == 3
    assert sum(offsets_to_commit(printer, *sources).values()) == 3


async def test_only_selected_records_are_printed_and_counted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    printer = make_printer(max_messages=2, pattern="[13579]")
    source = Source(Chunk([0, 1, 2]), Chunk([3, 4, 5]), ends=False)
    assert await printed(capfd, printer, source) == "0:1 0:3 "
    # records that were not selected are acknowledged, up to the last checked one
    assert offsets_to_commit(printer, source)[ZERO] in (4, 5)
    assert await printed(capfd, make_printer(key="k"), Source(Chunk([0]))) == ""


async def test_valid_records_are_printed_before_corruption_is_raised(
    capfd: pytest.CaptureFixture[str],
) -> None:
    printer, source = make_printer(), Source(Chunk([5, 6], corrupt=True), ends=False)
    with pytest.raises(CorruptRecords):
        await printer.run(cast("list[Stream]", [source]))
    assert capfd.readouterr().out == "0:5 0:6 "
    assert offsets_to_commit(printer, source) == {ZERO: 7}


async def test_a_temporary_rebalance_failure_is_logged_and_reading_continues(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(Chunk([1]), ConsumerRebalanceFailed("me", 4, "in the way"), Chunk([2]))
    assert await printed(capfd, make_printer(), source) == "0:1 0:2 "
    assert "me can't rebalance after 4 attempts" in caplog.text


async def test_the_printer_ends_when_no_record_arrives_within_the_timeout(
    capfd: pytest.CaptureFixture[str],
) -> None:
    printer, source = make_printer(timeout_ms=50), Source(Chunk([1]), ends=False)
    assert await printed(capfd, printer, source) == "0:1 "
    assert offsets_to_commit(printer, source) == {ZERO: 2}


class SlowOutput:
    """An output whose reader is as slow as the test wants."""

    written: "asyncio.Future[OSError | None]"

    async def __aenter__(self) -> "SlowOutput":
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def put(self, data: bytes) -> "asyncio.Future[OSError | None]":
        SlowOutput.written = asyncio.get_running_loop().create_future()
        return self.written


async def test_time_of_a_slow_output_does_not_count_for_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncconsumer.cli.consume.printer.Output", SlowOutput)
    printer, source = make_printer(timeout_ms=20), Source(Chunk([1]), ends=False)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(printer.run(cast("list[Stream]", [source])))
        await asyncio.sleep(0.1)  # longer than the timeout, which does not end the printer
        assert not running.done()
        SlowOutput.written.set_result(None)


async def test_an_error_of_a_stream_is_raised(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConsumerError, match="of no use"):
        await printed(capfd, make_printer(), Source(ends=False), Source(ConsumerError("of no use")))
