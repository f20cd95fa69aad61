"""Standard output: ordered, off the event loop, with a time limit."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from asyncconsumer.cli.consume.output import Output

pytestmark = pytest.mark.fast


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for end in (read, write):
        try:
            os.close(end)
        except OSError:
            continue  # the test has closed it


async def test_all_output_is_written_in_order_before_the_end(pipe: tuple[int, int]) -> None:
    read, write = pipe
    async with Output(write) as output:
        for number in range(100):
            output.put(b"%d\n" % number)
    os.close(write)
    with open(read, "rb", closefd=False) as file:
        assert [int(line) for line in file] == list(range(100))


async def test_a_slow_reader_does_not_block_the_event_loop(pipe: tuple[int, int]) -> None:
    read, write = pipe
    much = bytes(2**20)
    async with Output(write) as output:
        written = output.put(much)
        await asyncio.sleep(0)  # the loop runs
        assert not written.done()
        got = 0
        while got < len(much):
            got += len(await asyncio.to_thread(os.read, read, 2**20))
        assert await written is None


async def test_a_full_non_blocking_pipe_is_waited_for(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.set_blocking(write, False)
    async with Output(write) as output:
        written = output.put(bytes(2**18))
        got = 0
        while got < 2**18:
            got += len(await asyncio.to_thread(os.read, read, 2**20))
        assert await written is None


async def test_a_closed_pipe_is_reported_for_each_later_output(
    pipe: tuple[int, int],
) -> None:
    read, write = pipe
    os.close(read)
    async with Output(write) as output:
        assert isinstance(await output.put(b"x"), BrokenPipeError)
        assert isinstance(await output.put(b"y"), BrokenPipeError)


async def test_after_a_failed_write_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[OSError | None] = [None, OSError("disk full"), None]

    def write(descriptor: int, data: bytes) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    monkeypatch.setattr("asyncconsumer.cli.consume.output._write", write)
    async with Output(0) as output:
        results = [await output.put(b"x") for _ in range(3)]
    assert [str(error) for error in results] == ["None", "disk full", "disk full"]
    assert answers == [None]  # the last one was not tried


@pytest.mark.allow_leftovers("a thread that is stuck is left behind on purpose")
async def test_a_reader_that_does_not_read_does_not_prevent_the_exit(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = pipe
    monkeypatch.setattr("asyncconsumer.cli.consume.output._GRACE", 0.05)
    async with Output(write) as output:
        stuck = output.put(bytes(2**20))
    assert not stuck.done()
    os.close(read)  # frees the thread
    output._thread.join()
