"""Metrics in the format of Prometheus."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {each.name: each for each in text_string_to_metric_families(text)}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        """Return the sum of the series of a metric with these labels, or None without one."""
        matching = [
            value
            for (known, pairs), value in self._values.items()
            if known == f"asyncconsumer_{name}" and labels.items() <= dict(pairs).items()
        ]
        return sum(matching) if matching else None

    def label_values(self, name: str, label: str) -> set[str]:
        full_name = f"asyncconsumer_{name}"
        matching = [dict(pairs) for known, pairs in self._values if known == full_name]
        return {labels[label] for labels in matching if label in labels}


def scrape(registry: CollectorRegistry) -> Scrape:
    return Scrape(generate_latest(registry).decode())
