"""Code that runs while a record is decoded: finalizers, errors, abandoned coroutines."""

import gc
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import pytest

from asyncconsumer.errors import CorruptRecords
from asyncconsumer.records import decoding
from tests.support.record_encoder import Row, batch, rows

pytestmark = pytest.mark.fast

HEADERS = tuple((f"name-{n}", b"%d" % n * 50) for n in range(400))


@pytest.fixture
def compiled() -> ModuleType:
    return decoding.load("compiled")[1]


def opened(decoder: ModuleType, data: bytes, **options: Any) -> Any:
    return decoder.Records(bytearray(data), topic="t", partition=0, **options)


class Closer:
    """Cyclic garbage whose finalizer closes the records in use, and stores the outcome."""

    def __init__(self, close: Callable[[], object], outcomes: list[str]) -> None:
        self.close = close
        self.outcomes = outcomes
        self.itself = self

    def __del__(self) -> None:
        try:
            self.close()
        except RuntimeError as error:
            self.outcomes.append(str(error))
        else:
            self.outcomes.append("closed")


@contextmanager
def collected_within(garbage: Callable[[], object]) -> Iterator[None]:
    """Make garbage that the first allocation in the block collects, up to Python 3.11."""
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    garbage()
    gc.set_threshold(1)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
def test_headers_are_correct_if_a_finalizer_closes_the_records(
    compiled: ModuleType, codec: int
) -> None:
    result = opened(compiled, batch([Row(0), Row(1, headers=HEADERS), Row(2)], codec=codec))
    outcomes: list[str] = []
    next(result)  # decompression has allocated its memory
    with collected_within(lambda: Closer(result.close, outcomes)):
        record = next(result)
    assert record.headers == HEADERS
    assert record.value == b"value"
    gc.collect()
    if sys.version_info < (3, 12):  # later versions run the collector between bytecodes only
        assert len(outcomes) == 1
        assert outcomes[0].startswith("these Records are being read by another thread")
        assert [record.offset for record in result] == [2]
    else:
        assert outcomes == ["closed"]


def within(name: str, act: Callable[[], None]) -> Callable[[FrameType, str, object], None]:
    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == name:
            act()

    return watch


def take(result: Any) -> Any:
    return result.take_columns(63, 100, 2**30, 1)


@pytest.mark.parametrize("read", [next, take])
def test_records_cannot_be_used_while_their_error_is_created(
    compiled: ModuleType, read: Callable[[Any], Any]
) -> None:
    data = bytearray(batch(rows(3)) + batch(rows(3, first=3)))
    data[70] ^= 1  # a checksum that does not match
    result = opened(compiled, bytes(data))
    refused: list[str] = []

    def use() -> None:
        for record in (
            result.close,
            result.skip_corrupt,
            lambda: next(result),
            lambda: take(result),
        ):
            with pytest.raises(RuntimeError, match="being read") as caught:
                record()
            refused.append(str(caught.value))

    sys.setprofile(within("CorruptRecords.__init__", use))
    try:
        with pytest.raises(CorruptRecords):
            read(result)
    finally:
        sys.setprofile(None)
    assert len(refused) == 4
    assert result.skip_corrupt() == 3
    assert [record.offset for record in result] == [3, 4, 5]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python classes have no buffers")
def test_a_buffer_may_close_its_records_when_it_is_released(compiled: ModuleType) -> None:
    released: list[str] = []

    class Lender:
        def __buffer__(self, flags: int) -> memoryview:
            return memoryview(batch(rows(3)))

        def __release_buffer__(self, view: memoryview) -> None:
            try:
                result.close()
            except RuntimeError as error:
                released.append(str(error))
            else:
                released.append("closed")

    result: Any = compiled.Records(Lender(), topic="t", partition=0)
    next(result)
    result.close()
    assert len(released) == 1
    assert list(result) == []


async def test_an_abandoned_step_may_request_steps_when_it_is_closed(compiled: ModuleType) -> None:
    """The coroutine runs its `finally` when it is freed, during the next step."""
    taken: list[Any] = []

    class Waiting:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def refill() -> Any:
        try:
            await Waiting()
        finally:
            for _ in range(3):
                taken.append(stream.__anext__())
                taken.append(stream.__anext__())
                taken.clear()

    stream: Any = compiled.AsyncRecords(refill)
    for _ in range(3):
        step = stream.__anext__()
        step.send(None)  # waits for refill()
        del step
    following = stream.__anext__()
    assert following.send(None) is None
    following.close()
