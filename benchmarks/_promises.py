"""The run of contenders in interleaved rounds, and the check of promised ratios between them."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from asyncconsumer.testing.servers import Kafka
from benchmarks._child import Figures
from benchmarks._harness import arguments, heading, note, print_lines

Run: TypeAlias = Callable[[], Awaitable[Figures]]

RATE: Final = "records_per_s"
MB: Final = "mb_per_s"
CPU: Final = "cpu_s_per_million"
RSS: Final = "peak_rss_mb"
_MORE_IS_BETTER: Final = frozenset((RATE, MB))


class Promise(NamedTuple):
    """A ratio of one metric between two contenders, or between a contender and a number.

    `least` is the promised minimum. None promises nothing, and the ratio is only printed.
    """

    contender: str
    against: str | float
    metric: str
    least: float | None = None


class Case(NamedTuple):
    """The contenders of one benchmark case, the promised ratios and the number of rounds."""

    contenders: Mapping[str, Run]
    promises: Sequence[Promise]
    rounds: int


class Result(NamedTuple):
    """All runs of one contender in one case."""

    case: str
    contender: str
    samples: Sequence[Figures]

    def median(self, metric: str) -> float:
        return statistics.median(sample[metric] for sample in self.samples)

    def worst(self, metric: str) -> float:
        choose = min if metric in _MORE_IS_BETTER else max
        return choose(sample[metric] for sample in self.samples)

    def as_json(self) -> dict[str, object]:
        result: dict[str, object] = {"case": self.case, "contender": self.contender}
        for metric in self.samples[0]:
            result[metric] = round(self.median(metric), 4)
            result[f"worst_{metric}"] = round(self.worst(metric), 4)
        return result | {"rounds": len(self.samples)}


class Ratio(NamedTuple):
    """A measured ratio, and its promise. A larger ratio is better for the promise's contender."""

    case: str
    promise: Promise
    ratio: float

    @property
    def missed(self) -> bool:
        return self.promise.least is not None and self.ratio < self.promise.least

    @property
    def against(self) -> str:
        other = self.promise.against
        return other if isinstance(other, str) else f"at most {other:g}"

    def as_json(self) -> dict[str, object]:
        return {
            "case": f"{self.case}: {self.promise.contender}",
            "against": self.against,
            "metric": self.promise.metric,
            "ratio": round(self.ratio, 2),
            "least": self.promise.least,
            "missed": self.missed,
        }


Found: TypeAlias = list[Ratio | Result]


async def measure(name: str, case: Case) -> Found:
    """Run each contender once in each round. Return their results and the promised ratios.

    With interleaved rounds, other load on the machine affects all contenders alike.
    """
    samples: dict[str, list[Figures]] = {contender: [] for contender in case.contenders}
    for number in range(1, case.rounds + 1):
        for contender, run in case.contenders.items():
            samples[contender].append(await run())
            message = ", ".join(
                f"{key} {value:,.5g}" for key, value in samples[contender][-1].items()
            )
            note(f"  {name}, round {number}: {contender}: {message}")
    results = {contender: Result(name, contender, sample) for contender, sample in samples.items()}
    return [*results.values(), *_ratios(name, case, results)]


def only(case: Case, beginnings: Sequence[str]) -> Case:
    """Return the case with only the contenders whose names begin with one of `beginnings`.

    Promises that need another contender are dropped.
    """
    chosen = {
        contender: run
        for contender, run in case.contenders.items()
        if contender.startswith(tuple(beginnings))
    }
    retained = [
        promise
        for promise in case.promises
        if promise.contender in chosen
        and (promise.against in chosen or not isinstance(promise.against, str))
    ]
    return case._replace(contenders=chosen, promises=retained)


def _ratios(name: str, case: Case, results: Mapping[str, Result]) -> list[Ratio]:
    result = []
    for promise in case.promises:
        mine = results[promise.contender].median(promise.metric)
        other = promise.against
        theirs = other if isinstance(other, float | int) else results[other].median(promise.metric)
        better = mine / theirs if promise.metric in _MORE_IS_BETTER else theirs / mine
        result.append(Ratio(name, promise, better))
    return result


def tell(bench: str, results: Found, *, as_json: bool) -> None:
    """Print the results and the ratios, as JSON lines or as tables."""
    if not as_json:
        _show(results)
        return
    lines = sorted(results, key=lambda result: isinstance(result, Ratio))
    print_lines({"bench": bench} | line.as_json() for line in lines)


def _show(actual: Found) -> None:
    print(heading())
    for case in dict.fromkeys(result.case for result in actual):
        results = [
            result for result in actual if isinstance(result, Result) and result.case == case
        ]
        print(f"\n{case}: the median, and the worst round")
        print(f"  {'':30}" + "".join(f"{metric:>26}" for metric in results[0].samples[0]))
        for result in results:
            cells = (
                f"{result.median(metric):,.5g} ({result.worst(metric):,.5g})"
                for metric in result.samples[0]
            )
            print(f"  {result.contender:30}" + "".join(f"{cell:>26}" for cell in cells))
        for ratio in actual:
            if isinstance(ratio, Ratio) and ratio.case == case:
                least = ratio.promise.least
                promised = "" if least is None else f" (at least {least:g})"
                missed = ": MISSED" if ratio.missed else ""
                print(
                    f"  {ratio.promise.contender} is {ratio.ratio:.2f} times as good as "
                    f"{ratio.against} by {ratio.promise.metric}{promised}{missed}"
                )


def run_cases(
    bench: str,
    description: str | None,
    cases: Mapping[str, Callable[..., Awaitable[Case]]],
) -> None:
    """Measure the cases that the command line names, by default all, on one broker."""
    parser = arguments(description)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", action="append", choices=list(cases))
    options = parser.parse_args()

    async def measure_all() -> Found:
        results: Found = []
        async with Kafka() as kafka:
            for name in options.case or list(cases):
                case = await cases[name](kafka, quick=options.quick)
                case = case._replace(rounds=options.rounds or case.rounds)
                results += await measure(name, case)
        return results

    tell(bench, asyncio.run(measure_all()), as_json=options.json)
