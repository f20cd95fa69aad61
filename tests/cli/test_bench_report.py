"""The figures of `asyncconsumer bench`."""

import pytest

from asyncconsumer.cli.bench.report import BenchReport, percentile

pytestmark = pytest.mark.fast


def test_percentiles_are_values_that_occurred() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, part) for part in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([7.0], 0.5) == percentile([7.0], 1.0) == 7.0


def test_figures_have_their_units() -> None:
    report = BenchReport(2_000_000, 50_000_000, 4.0, 0.5, 0.25, [0.003, 0.001, 0.002])
    figures = report.as_json()
    assert figures.pop("peak_memory_mb") > 1
    assert figures == {
        "records": 2_000_000,
        "mb": 50.0,
        "seconds": 4.0,
        "records_per_second": 500_000.0,
        "mb_per_second": 12.5,
        "cpu_seconds_per_million": 0.25,
        "first_record_seconds": 0.25,
        "latency_p50_ms": 2.0,
        "latency_p95_ms": 3.0,
        "latency_p99_ms": 3.0,
        "latency_max_ms": 3.0,
    }


def test_an_empty_read_has_no_rates(capsys: pytest.CaptureFixture[str]) -> None:
    report = BenchReport(0, 0, 1.0, 0.1)
    assert report.as_json()["records_per_second"] is None
    report.print(json=False)
    assert "records/s" in capsys.readouterr().out
