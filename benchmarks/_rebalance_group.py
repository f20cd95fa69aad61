"""A group of members in processes of their own: their partitions and deliveries."""

import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from asyncconsumer.testing.servers import Kafka
from benchmarks._rebalance_members import ENTRY

PARTITIONS: Final = 100
MS_BETWEEN_RECORDS: Final = 40
_SECONDS_BETWEEN_LOOKS: Final = 0.05
_MOST_SECONDS: Final = 90.0
_SECONDS_FOR_THE_LAST: Final = 15.0  # until a record that did not come is taken for lost


class MemberEvent(NamedTuple):
    """An event that a member reported, with its time in ns."""

    event: str
    time_ns: int
    partitions: Sequence[int]


class Delivery(NamedTuple):
    """One record that a member was given; times are in ns."""

    partition: int
    offset: int
    appended: int
    delivered: int


class Owned(NamedTuple):
    """A member has had a partition from one moment to another."""

    partition: int
    since: int
    until: int


class MemberProcess:
    """One member."""

    def __init__(self, process: Process, diary: Path) -> None:
        self.process = process
        self.events: list[MemberEvent] = []
        self.deliveries: list[Delivery] = []
        self._times: dict[int, list[int]] = {}  # of deliveries, by partition
        self._diary = diary
        self._read = 0

    async def listen(self) -> None:
        """Take in what it tells, until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(MemberEvent(**json.loads(line)))

    def look(self) -> list[Delivery]:
        """Return the deliveries since the last call."""
        with self._diary.open("rb") as diary:
            diary.seek(self._read)
            raw = diary.read()
        whole = len(raw) // ENTRY.size * ENTRY.size
        self._read += whole
        new = [Delivery(*entry) for entry in ENTRY.iter_unpack(raw[:whole])]
        for delivery in new:
            self._times.setdefault(delivery.partition, []).append(delivery.delivered)
        self.deliveries += new
        return new

    def order(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n".encode())

    async def said(self, event: str, since: int = 0) -> int:
        """When it first said so after a moment."""
        async with asyncio.timeout(_MOST_SECONDS):
            while True:
                for entry in self.events:
                    if entry.event == event and entry.time_ns >= since:
                        return entry.time_ns
                await asyncio.sleep(0.005)

    def kill(self) -> int:
        now = time.time_ns()
        self.process.kill()
        return now

    def owned(self) -> Iterator[Owned]:
        """Yield the partitions that it has and had. A current one has no end."""
        since: dict[int, int] = {}
        for entry in self.events:
            if entry.event == "assigned":
                since |= dict.fromkeys(entry.partitions, entry.time_ns)
            if entry.event == "revoked":
                for partition in entry.partitions:
                    if partition in since:
                        yield Owned(partition, since.pop(partition), entry.time_ns)
        for partition, offset in since.items():
            yield Owned(partition, offset, sys.maxsize)

    def has(self) -> dict[int, int]:
        """Return its partitions and the times since which it has them."""
        return {
            owned.partition: owned.since for owned in self.owned() if owned.until == sys.maxsize
        }

    def noticed(self, since: int) -> int:
        """When it first had something taken or given."""
        return next(
            entry.time_ns for entry in self.events if entry.time_ns >= since and entry.partitions
        )

    def first_delivery(self, partition: int, since: int) -> int | None:
        times = self._times.get(partition, [])
        result = bisect_left(times, since)
        return times[result] if result < len(times) else None


class Group:
    """All members that there have been, and all records that came to them."""

    def __init__(self, start: Any) -> None:  # noqa: ANN401 - a coroutine function that starts one
        self._start = start
        self._members: list[MemberProcess] = []
        self._offsets: dict[int, set[int]] = {number: set() for number in range(PARTITIONS)}
        self.fresh: list[Delivery] = []  # first deliveries, in about the order of their times
        self.duplicates = 0

    async def member(self) -> MemberProcess:
        """One that has not joined yet."""
        member: MemberProcess = await self._start()
        self._members.append(member)
        await member.said("ready")
        return member

    async def of(self, members: int) -> list[MemberProcess]:
        """Return this number of members after they joined and settled."""
        results = [await self.member() for _ in range(members)]
        for number, process in enumerate(results):
            process.order("join")
            await self.settled(*results[: number + 1], since=0)
        return results

    async def settled(self, *members: MemberProcess, since: int) -> int:
        """When the last partition delivered to its owner, once these members share all evenly.

        Partitions that one of them has had since before do not count.
        """
        least, more = divmod(PARTITIONS, len(members))
        sizes = sorted([least + 1] * more + [least] * (len(members) - more))
        async with asyncio.timeout(_MOST_SECONDS):
            while True:
                self.look()
                has = [member.has() for member in members]
                everything = {partition for partitions in has for partition in partitions}
                if sorted(map(len, has)) == sizes and len(everything) == PARTITIONS:
                    resumed = [
                        member.first_delivery(partition, offset)
                        for member, partitions in zip(members, has, strict=True)
                        for partition, offset in partitions.items()
                        if offset >= since
                    ]
                    if None not in resumed:
                        return max(
                            (offset for offset in resumed if offset is not None), default=since
                        )
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def look(self) -> None:
        new = [delivery for member in self._members for delivery in member.look()]
        for partitions in sorted(new, key=lambda delivery: delivery.delivered):
            seen = self._offsets[partitions.partition]
            if partitions.offset in seen:
                self.duplicates += 1
            else:
                seen.add(partitions.offset)
                self.fresh.append(partitions)

    async def lost(self) -> int:
        """Records before others that came, which do not come themselves."""
        end = time.monotonic() + _SECONDS_FOR_THE_LAST
        while True:
            self.look()
            lost = sum(max(offset) + 1 - len(offset) for offset in self._offsets.values() if offset)
            if not lost or time.monotonic() > end:
                return lost
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def longest_wait(self, partitions: set[int], since: int, until: int) -> float:
        """Of these partitions' records that came then, in ms, from when the broker had them."""
        waits = (
            delivery.delivered - delivery.appended
            for delivery in self.fresh
            if delivery.partition in partitions and since <= delivery.delivered <= until
        )
        return max(waits, default=0) / 1e6


@asynccontextmanager
async def group(
    kafka: Kafka, name: str, kind: str, options: Mapping[str, object]
) -> AsyncIterator[Group]:
    """A group without members, and a topic for it that is written to all the time."""
    await kafka.admin.create_topic(
        name, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
    )
    servers = kafka.bootstrap_servers
    message = json.dumps({"group_id": name, **options})
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        numbers = count()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())

        async def start() -> MemberProcess:
            diary = folder / str(next(numbers))
            diary.touch()
            arguments = ["_rebalance_members", kind, servers, name, str(diary), message]
            member = MemberProcess(await _child(stack, *arguments), diary)
            tasks.create_task(member.listen())
            return member

        await _child(stack, "_rebalance_sender", servers, name, PARTITIONS, MS_BETWEEN_RECORDS)
        yield Group(start)
    await kafka.admin.delete_topic(name)


async def _child(stack: AsyncExitStack, module: str, *arguments: object) -> Process:
    """A process that ends with the stack."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments), stdin=PIPE, stdout=PIPE
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process
