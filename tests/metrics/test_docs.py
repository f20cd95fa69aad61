"""The list of metrics in docs/metrics.md."""

from pathlib import Path

import pytest

from asyncconsumer.metrics.families import FAMILIES, PREFIX

pytestmark = pytest.mark.fast

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_metric_is_in_the_docs() -> None:
    rows = []
    for name, family in FAMILIES.items():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{PREFIX}{name}` | {family.kind} | {labels} | {family.help} |")
    listed = [row for row in PAGE.read_text().splitlines() if row.startswith(f"| `{PREFIX}")]
    assert listed == rows
