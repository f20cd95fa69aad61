"""Contenders in interleaved rounds, what was promised of ours, and whether it is kept."""

import json
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from benchmarks._child import Figures
from benchmarks._harness import note

Run: TypeAlias = Callable[[], Awaitable[Figures]]

RATE: Final = "records_per_s"
MB: Final = "mb_per_s"
CPU: Final = "cpu_s_per_million"
RSS: Final = "peak_rss_mb"
_MORE_IS_BETTER: Final = frozenset((RATE, MB))


class Promise(NamedTuple):
    """How many times better one must be than another, or than a figure, by one metric."""

    who: str
    against: str | float
    metric: str
    least: float | None = None


class Case(NamedTuple):
    """One question, and who answers it."""

    contenders: Mapping[str, Run]
    promises: Sequence[Promise]
    rounds: int


class Result(NamedTuple):
    """All runs of one contender in one case."""

    case: str
    who: str
    samples: Sequence[Figures]

    def median(self, metric: str) -> float:
        return statistics.median(sample[metric] for sample in self.samples)

    def worst(self, metric: str) -> float:
        choose = min if metric in _MORE_IS_BETTER else max
        return choose(sample[metric] for sample in self.samples)

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = {"case": self.case, "who": self.who}
        for metric in self.samples[0]:
            found[metric] = round(self.median(metric), 4)
            found[f"worst_{metric}"] = round(self.worst(metric), 4)
        return found | {"rounds": len(self.samples)}


class Ratio(NamedTuple):
    """What became of a promise."""

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
            "case": f"{self.case}: {self.promise.who}",
            "against": self.against,
            "metric": self.promise.metric,
            "ratio": round(self.ratio, 2),
            "least": self.promise.least,
            "missed": self.missed,
        }


Found: TypeAlias = list[Ratio | Result]


async def measure(name: str, case: Case) -> Found:
    """Every contender once a round: a busy minute hits them all."""
    samples: dict[str, list[Figures]] = {who: [] for who in case.contenders}
    for number in range(1, case.rounds + 1):
        for who, run in case.contenders.items():
            samples[who].append(await run())
            told = ", ".join(f"{key} {value:,.5g}" for key, value in samples[who][-1].items())
            note(f"  {name}, round {number}: {who}: {told}")
    results = {who: Result(name, who, sample) for who, sample in samples.items()}
    return [*results.values(), *_ratios(name, case, results)]


def only(case: Case, beginnings: Sequence[str]) -> Case:
    """The contenders whose names begin so, and what can be said of them."""
    chosen = {who: run for who, run in case.contenders.items() if who.startswith(tuple(beginnings))}
    kept = [
        one
        for one in case.promises
        if one.who in chosen and (one.against in chosen or not isinstance(one.against, str))
    ]
    return case._replace(contenders=chosen, promises=kept)


def _ratios(name: str, case: Case, results: Mapping[str, Result]) -> list[Ratio]:
    found = []
    for promise in case.promises:
        mine = results[promise.who].median(promise.metric)
        other = promise.against
        theirs = other if isinstance(other, float | int) else results[other].median(promise.metric)
        better = mine / theirs if promise.metric in _MORE_IS_BETTER else theirs / mine
        found.append(Ratio(name, promise, better))
    return found


def tell(bench: str, found: Found, *, as_json: bool) -> None:
    """The results, and then the ratios: JSON lines, or tables."""
    if not as_json:
        _show(found)
        return
    for line in sorted(found, key=lambda one: isinstance(one, Ratio)):
        print(json.dumps({"bench": bench} | line.as_json()))


def _show(found: Found) -> None:
    for case in dict.fromkeys(one.case for one in found):
        results = [one for one in found if isinstance(one, Result) and one.case == case]
        print(f"\n{case}: the median, and the worst round")
        print(f"  {'':30}" + "".join(f"{metric:>26}" for metric in results[0].samples[0]))
        for result in results:
            cells = (
                f"{result.median(metric):,.5g} ({result.worst(metric):,.5g})"
                for metric in result.samples[0]
            )
            print(f"  {result.who:30}" + "".join(f"{cell:>26}" for cell in cells))
        for ratio in found:
            if isinstance(ratio, Ratio) and ratio.case == case:
                wanted = (
                    "" if ratio.promise.least is None else f" (at least {ratio.promise.least:g})"
                )
                print(
                    f"  {ratio.promise.who} is {ratio.ratio:.2f} times as good as {ratio.against} "
                    f"by {ratio.promise.metric}{wanted}{': MISSED' if ratio.missed else ''}"
                )
