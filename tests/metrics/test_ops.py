"""The Grafana dashboard and the alert rules in ops/: they use metrics and labels that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from asyncconsumer.metrics.families import FAMILIES, PREFIX

pytestmark = pytest.mark.fast

OPS = Path(__file__).parents[2] / "ops"
DASHBOARD = json.loads((OPS / "grafana-dashboard.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((OPS / "prometheus-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
EVERYWHERE = {"group", "worker", "le"}


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"][1:]]
    return queries + variables + [rule["expr"] for rule in RULES]


def families_in(text: str) -> set[str]:
    """Return the metrics that an expression uses, without the suffixes of histograms."""
    names = set()
    for name in re.findall(rf"{PREFIX}(\w+)", text):
        base = re.sub("_(bucket|count|sum)$", "", name)
        is_part = name != base and FAMILIES.get(base, FAMILIES["live"]).kind == "histogram"
        names.add(base if is_part else name)
    return names


def test_every_expression_uses_metrics_that_exist() -> None:
    assert expressions()
    for expression in expressions():
        assert families_in(expression), expression
        assert families_in(expression) <= FAMILIES.keys(), expression


def test_histograms_are_used_by_their_buckets_count_or_sum() -> None:
    for expression in expressions():
        for name in re.findall(rf"{PREFIX}(\w+)", expression):
            assert FAMILIES.get(name, FAMILIES["live"]).kind != "histogram", expression


def test_counters_are_used_by_their_rate_or_increase() -> None:
    for expression in expressions():
        for name in re.findall(rf"{PREFIX}(\w+(?:_total|_bucket|_count|_sum))\b", expression):
            assert re.search(rf"(rate|increase)\({PREFIX}{name}", expression), expression


def test_every_expression_groups_by_labels_that_its_metrics_have() -> None:
    for expression in expressions():
        allowed = {label for name in families_in(expression) for label in FAMILIES[name].labels}
        for labels in re.findall(r"\bby \(([^)]*)\)", expression):
            used = set(re.split(r",\s*", labels))
            assert used <= allowed | EVERYWHERE, expression


def test_every_legend_and_annotation_names_labels_that_the_expression_keeps() -> None:
    texts = [(t["expr"], t["legendFormat"]) for panel in panels() for t in panel["targets"]]
    texts += [(rule["expr"], text) for rule in RULES for text in rule["annotations"].values()]
    for expression, text in texts:
        used = set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", text))
        for labels in re.findall(r"\bby \(([^)]*)\)", expression):
            assert used <= set(re.split(r",\s*", labels)), text


def test_every_metric_of_a_partition_or_handler_is_on_the_dashboard() -> None:
    shown = {
        name for panel in panels() for t in panel["targets"] for name in families_in(t["expr"])
    }
    missing = {name for name in FAMILIES if name not in shown}
    assert missing == {
        "live",  # an alert
        "handler_failed_total",  # the errors panel shows it by type
        "feeder_bytes_total",
        "feeder_batches_total",
        "feeder_failed_commits_total",
        "query_lag_records",  # of Spark, not of a consumer
        "query_lag_seconds",
    }


def test_panels_do_not_overlap() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert cells.setdefault((x, y), panel["title"]) is panel["title"]
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_every_alert_has_a_summary_and_a_description() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 8
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
