"""The duration of rebalances of groups, for asyncconsumer, aiokafka and confluent-kafka.

    python -m benchmarks.rebalance [--quick] [--json] [--rounds N] [--case NAME ...]
                                   [--heartbeat SECONDS]

A topic has 100 partitions, each with a new record every 40 ms. Members run in processes of their
own, in interleaved rounds, with the same session timeout and commit interval. A member is notified
of a rebalance in the response to a heartbeat. Each client sends heartbeats at its default interval
(asyncconsumer 1 s, others 3 s), or all at the interval `--heartbeat`. The result depends on the
time since the last heartbeat, so each round uses another one. If a promised ratio or limit is
missed, the output says so.

moves: a second member joins and leaves. "join" is the time from its call until all moved partitions
deliver records to their new owners. "leave" is the time until all partitions deliver to the first
member again.

failover: one of two members is killed. The figures are the time until all partitions deliver to the
other member, and this time minus the session timeout.

third: a third member joins. The figures are the longest wait of a record, from its append to its
delivery, in the partitions whose owner stays the same, and the same before the join.

blocked: an event loop is blocked for 20 s, with a session timeout of 6 s. The figures include the
records that it delivered while another member owned their partitions.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import Figures
from benchmarks._harness import arguments, note, print_lines
from benchmarks._rebalance_group import Group, MemberProcess, Owned, group

RANGE, COOPERATIVE = "range", "cooperative-sticky"
BLOCKED_SECONDS: Final = 20
_MEMORY: Final = Path("/dev/shm")
_QUIET_NS: Final = 10**9  # a period before the rebalance, for comparison
_PEERS_OWN_HEARTBEAT: Final = 3.0  # seconds, the default of the other clients
_GOLDEN: Final = 0.618  # the fractions of its multiples are spread evenly

Found: TypeAlias = dict[tuple[str, str], list[Figures]]
"""The figures of all rounds, by case and contender."""


class Contender(NamedTuple):
    kind: str
    strategy: str
    heartbeat_thread: bool = True

    @property
    def name(self) -> str:
        without = "" if self.heartbeat_thread else ", no thread"
        return f"{self.kind}, {self.strategy}{without}"


ASYNCCONSUMER, THEIRS, LIBRDKAFKA = (
    Contender(kind, RANGE) for kind in ("asyncconsumer", "aiokafka", "confluent")
)
ASYNCCONSUMER_COOPERATIVE = ASYNCCONSUMER._replace(strategy=COOPERATIVE)
LIBRDKAFKA_COOPERATIVE = LIBRDKAFKA._replace(strategy=COOPERATIVE)
ASYNCCONSUMER_ALONE = ASYNCCONSUMER._replace(heartbeat_thread=False)

EVERYBODY: Final = (
    ASYNCCONSUMER,
    THEIRS,
    LIBRDKAFKA,
    ASYNCCONSUMER_COOPERATIVE,
    LIBRDKAFKA_COOPERATIVE,
)
PAIRS: Final = (
    (ASYNCCONSUMER, THEIRS),
    (ASYNCCONSUMER, LIBRDKAFKA),
    (ASYNCCONSUMER_COOPERATIVE, LIBRDKAFKA_COOPERATIVE),
)
QUICKER: Final = {("join", "s"), ("leave", "s"), ("failover", "s")}  # promised less than the peers'
MOST: Final = {
    ("third", ASYNCCONSUMER_COOPERATIVE.name, "pause_ms"): 100.0,
    ("blocked", ASYNCCONSUMER.name, "late"): 0.0,
    ("blocked", ASYNCCONSUMER_ALONE.name, "late"): 0.0,
}


class Row(NamedTuple):
    """One metric of one contender in one case."""

    case: str
    contender: str
    metric: str
    median: float
    worst: float
    rounds: int

    @property
    def most(self) -> float | None:
        if self.metric == "lost" and self.contender.startswith("asyncconsumer"):
            return 0.0
        return MOST.get((self.case, self.contender, self.metric))

    @property
    def missed(self) -> bool:
        """Whether the limit is exceeded: by the worst round if it is 0, otherwise by the median."""
        judged = self.median if self.most else self.worst
        return self.most is not None and judged > self.most

    def as_json(self) -> dict[str, object]:
        rounded = {"median": round(self.median, 4), "worst": round(self.worst, 4)}
        return {"bench": "rebalance", **self._asdict(), **rounded, "most": self.most}


class Ratio(NamedTuple):
    """A ratio of the medians of two contenders."""

    case: str
    contender: str
    against: str
    metric: str
    ratio: float

    @property
    def missed(self) -> bool:
        return self.ratio < 1

    def as_json(self) -> dict[str, object]:
        rounded = {"ratio": round(self.ratio, 3), "least": 1.0}
        return {"bench": "rebalance", **self._asdict(), **rounded}


class Plan(NamedTuple):
    """The cluster, and the options of the command line."""

    kafka: Kafka
    rounds: int
    quick: bool
    heartbeat: float | None

    @property
    def longest(self) -> float:
        """The longest heartbeat interval of all clients, in seconds."""
        return self.heartbeat or _PEERS_OWN_HEARTBEAT

    @property
    def session(self) -> float:
        return max(6.0, 3 * self.longest)

    def times(self, usual: int) -> int:
        return self.rounds or (1 if self.quick else usual)

    def group(self, case: str, contender: Contender) -> AbstractAsyncContextManager[Group]:
        name = f"{case}-{contender.name}-{time.time_ns()}".replace(", ", "-").replace(" ", "-")
        options = {
            "strategy": contender.strategy,
            "heartbeat_thread": contender.heartbeat_thread,
            "session_ms": int(self.session * 1000),
        }
        if self.heartbeat is not None:
            options["heartbeat_ms"] = int(self.heartbeat * 1000)
        return group(self.kafka, name, contender.kind, options)

    async def somewhere(self, number: int) -> None:
        """Wait for a time that differs for each `number`, relative to the heartbeat interval."""
        await asyncio.sleep(self.longest * (1 + number * _GOLDEN % 1))


# --- the cases -----------------------------------------------------------------------------------


async def moves(plan: Plan, results: Found) -> None:
    for number in range(plan.times(3)):
        for contender in EVERYBODY[: 3 if plan.quick else 5]:
            async with plan.group("moves", contender) as members:
                [first] = await members.of(1)
                for cycle in range(1 if plan.quick else 3):
                    place = number * 3 + cycle
                    joined, second = await _join(plan, members, [first], place)
                    _record(results, "join", contender, joined)
                    remaining = await _leave(plan, members, first, second, place)
                    _record(results, "leave", contender, remaining)


async def _join(
    plan: Plan, members: Group, existing: list[MemberProcess], place: int
) -> tuple[Figures, MemberProcess]:
    coming = await members.member()
    await plan.somewhere(place)
    before = members.duplicates
    asked = time.time_ns()
    coming.order("join")
    began = await coming.said("joining", asked)
    end = await members.settled(*existing, coming, since=began)
    noticed = min(process.noticed(began) for process in existing)
    return {
        "s": (end - began) / 1e9,
        "after_noticing_s": (end - noticed) / 1e9,
        "lost": await members.lost(),
        "duplicates": members.duplicates - before,
    }, coming


async def _leave(
    plan: Plan, members: Group, staying: MemberProcess, going: MemberProcess, place: int
) -> Figures:
    await plan.somewhere(place)
    before = members.duplicates
    asked = time.time_ns()
    going.order("leave")
    began = await going.said("leaving", asked)
    end = await members.settled(staying, since=began)
    return {
        "s": (end - began) / 1e9,
        "after_noticing_s": (end - staying.noticed(began)) / 1e9,
        "lost": await members.lost(),
        "duplicates": members.duplicates - before,
    }


async def failover(plan: Plan, results: Found) -> None:
    for number in range(plan.times(5)):
        for contender in EVERYBODY:
            async with plan.group("failover", contender) as members:
                staying, dying = await members.of(2)
                await plan.somewhere(number)
                before = members.duplicates
                began = dying.kill()
                end = await members.settled(staying, since=began)
                seconds = (end - began) / 1e9
                figures = {
                    "s": seconds,
                    "beyond_session_s": seconds - plan.session,
                    "lost": await members.lost(),
                    "duplicates": members.duplicates - before,
                }
                _record(results, "failover", contender, figures)


async def third(plan: Plan, results: Found) -> None:
    for number in range(plan.times(3)):
        for contender in (
            ASYNCCONSUMER_COOPERATIVE,
            LIBRDKAFKA_COOPERATIVE,
            ASYNCCONSUMER,
            THEIRS,
            LIBRDKAFKA,
        ):
            async with plan.group("third", contender) as members:
                existing = await members.of(2)
                had = [set(process.has()) for process in existing]
                figures, coming = await _join(plan, members, existing, number)
                began, end = await coming.said("joining"), time.time_ns()
                stay = {
                    number
                    for member, before in zip(existing, had, strict=True)
                    for number in before & member.has().keys()
                }
                quiet = members.longest_wait(stay, began - _QUIET_NS, began)
                pause = members.longest_wait(stay, began, end)
                figures = {"pause_ms": pause, "quiet_ms": quiet, **figures}
                _record(results, "third", contender, figures)


async def blocked(plan: Plan, results: Found) -> None:
    for _ in range(plan.times(3)):
        for contender in (ASYNCCONSUMER_ALONE, ASYNCCONSUMER, THEIRS):
            async with plan.group("blocked", contender) as members:
                other, status = await members.of(2)
                before = members.duplicates
                status.order("slow")  # so that it has fetched records that it has not delivered
                await asyncio.sleep(2)
                status.order(f"block {BLOCKED_SECONDS}")
                began = await status.said("blocked")
                again = await status.said("unblocked")
                end = await members.settled(other, status, since=began)
                lost = await members.lost()
                had = [owned for owned in other.owned() if owned.since > began]
                figures = {
                    "late": _late(had, status, again),
                    "taken_over": len({owned.partition for owned in had if owned.since < again}),
                    "lost": lost,
                    "duplicates": members.duplicates - before,
                    "back_s": (end - again) / 1e9 if end > again else 0.0,
                }
                _record(results, "blocked", contender, figures)


def _late(had: Sequence[Owned], status: MemberProcess, again: int) -> int:
    """Return the number of records that a blocked member delivered while another owned them.

    `had` has the periods in which the other member owned partitions. `status` is the blocked
    member, and `again` the time in ns at which it continued.
    """
    by_partition: dict[int, list[Owned]] = {}
    for owned in had:
        by_partition.setdefault(owned.partition, []).append(owned)
    return sum(
        any(
            owned.since <= record.delivered < owned.until
            for owned in by_partition[record.partition]
        )
        for record in status.deliveries
        if record.delivered >= again and record.partition in by_partition
    )


CASES: Final[Mapping[str, Callable[[Plan, Found], Awaitable[None]]]] = {
    "moves": moves,
    "failover": failover,
    "third": third,
    "blocked": blocked,
}


# --- running and printing ------------------------------------------------------------------------


def _record(results: Found, case: str, contender: Contender, figures: Figures) -> None:
    results.setdefault((case, contender.name), []).append(figures)
    message = ", ".join(f"{metric} {value:,.4g}" for metric, value in figures.items())
    note(f"  {case}: {contender.name}: {message}")


def rows(results: Found) -> list[Row]:
    return [
        Row(case, contender, metric, statistics.median(values), max(values), len(samples))
        for (case, contender), samples in results.items()
        for metric in samples[0]
        if (values := [sample[metric] for sample in samples])
    ]


def ratios(of: Iterable[Row]) -> list[Ratio]:
    medians = {(row.case, row.contender, row.metric): row.median for row in of}
    return [
        Ratio(case, contender.name, against.name, metric, medians[case, against.name, metric] / own)
        for case, metric in sorted(QUICKER)
        for contender, against in PAIRS
        if (own := medians.get((case, contender.name, metric)))
        if (case, against.name, metric) in medians
    ]


def show(of: Sequence[Row], compared: Sequence[Ratio]) -> None:
    for case in dict.fromkeys(row.case for row in of):
        print(f"\n{case}: the median, and the worst round")
        for row in of:
            if row.case == case:
                promised = "" if row.most is None else f"  (at most {row.most:g})"
                missed = ": MISSED" if row.missed else ""
                figures = f"{row.median:>12,.4g}{row.worst:>12,.4g}"
                print(f"  {row.contender:32}{row.metric:18}{figures}{promised}{missed}")
        for ratio in compared:
            if ratio.case == case:
                missed = ": MISSED" if ratio.missed else ""
                print(
                    f"  {ratio.contender} is {ratio.ratio:.2f} times as quick as "
                    f"{ratio.against}{missed}"
                )


async def measure(
    names: Sequence[str], rounds: int, heartbeat: float | None, *, quick: bool
) -> Found:
    result: Found = {}
    if _MEMORY.is_dir():
        tempfile.tempdir = str(
            _MEMORY
        )  # the broker's files: a disk stands still for 500 ms at times
    async with Kafka() as kafka:
        for name in names:
            await CASES[name](Plan(kafka, rounds, quick, heartbeat), result)
    return result


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--heartbeat", type=float, help="seconds between heartbeats, for all")
    options = parser.parse_args()
    names = options.case or (["moves"] if options.quick else list(CASES))
    measured = rows(
        asyncio.run(measure(names, options.rounds, options.heartbeat, quick=options.quick))
    )
    compared = ratios(measured)
    if not options.json:
        show(measured, compared)
        return
    print_lines([row.as_json() for row in measured] + [ratio.as_json() for ratio in compared])


if __name__ == "__main__":
    main()
