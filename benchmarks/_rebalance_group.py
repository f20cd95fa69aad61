"""A group whose members run in processes of their own, with their partitions and deliveries."""

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
_SECONDS_FOR_THE_LAST: Final = 15.0  # until a record that did not arrive counts as lost


class MemberEvent(NamedTuple):
    """An event that a member reported, with its time and the numbers of its partitions."""

    event: str
    time_ns: int
    partitions: Sequence[int]


class Delivery(NamedTuple):
    """The delivery of a record to a member. Both times are in ns since the epoch."""

    partition: int
    offset: int
    appended: int
    delivered: int


class Owned(NamedTuple):
    """A period in which a member owned a partition, in ns since the epoch."""

    partition: int
    since: int
    until: int


class MemberProcess:
    """A member of the group in a process, with the events and deliveries that it has reported."""

    def __init__(self, process: Process, diary: Path) -> None:
        self.process = process
        self.events: list[MemberEvent] = []
        self.deliveries: list[Delivery] = []
        self._times: dict[int, list[int]] = {}  # of deliveries, by partition
        self._diary = diary
        self._read = 0

    async def listen(self) -> None:
        """Store the events that the process prints, until it ends."""
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
        """Return the time in ns of the first event of this name at or after `since`.

        Wait for the event if there is none yet.
        """
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
        """Yield all periods in which the member owned a partition.

        A period that has not ended ends at `sys.maxsize`.
        """
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
        """Return the time of assignment in ns of each partition that the member owns."""
        return {
            owned.partition: owned.since for owned in self.owned() if owned.until == sys.maxsize
        }

    def noticed(self, since: int) -> int:
        """Return the time of the first event at or after `since` that changed its partitions."""
        return next(
            entry.time_ns for entry in self.events if entry.time_ns >= since and entry.partitions
        )

    def first_delivery(self, partition: int, since: int) -> int | None:
        times = self._times.get(partition, [])
        result = bisect_left(times, since)
        return times[result] if result < len(times) else None


class Group:
    """All members of a group, including former ones, and all records delivered to them."""

    def __init__(self, start: Any) -> None:  # noqa: ANN401 - a coroutine function that starts one
        self._start = start
        self._members: list[MemberProcess] = []
        self._offsets: dict[int, set[int]] = {number: set() for number in range(PARTITIONS)}
        self.fresh: list[Delivery] = []  # first deliveries, in about the order of their times
        self.duplicates = 0

    async def member(self) -> MemberProcess:
        """Start and return a member that has not joined the group yet."""
        member: MemberProcess = await self._start()
        self._members.append(member)
        await member.said("ready")
        return member

    async def of(self, members: int) -> list[MemberProcess]:
        """Start `members` members, which join one after the other, and return them."""
        results = [await self.member() for _ in range(members)]
        for number, process in enumerate(results):
            process.order("join")
            await self.settled(*results[: number + 1], since=0)
        return results

    async def settled(self, *members: MemberProcess, since: int) -> int:
        """Wait until these members have all partitions, evenly divided, and read each of them.

        Return the time in ns at which the last partition delivered its first record to its owner.
        Partitions that were assigned before `since` do not count.
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
        """Return the number of records that were not delivered although later ones were.

        Wait some seconds for missing records before.
        """
        end = time.monotonic() + _SECONDS_FOR_THE_LAST
        while True:
            self.look()
            lost = sum(max(offset) + 1 - len(offset) for offset in self._offsets.values() if offset)
            if not lost or time.monotonic() > end:
                return lost
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def longest_wait(self, partitions: set[int], since: int, until: int) -> float:
        """Return the longest time in ms from the append of a record to its first delivery.

        Only records of `partitions` that were delivered from `since` to `until` count.
        """
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
    """Return an async context manager with a group without members, and a topic for it.

    A process writes to all partitions of the topic all the time.
    """
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
    """Start a process that is killed when the stack is closed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments), stdin=PIPE, stdout=PIPE
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process
