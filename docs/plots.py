"""Draw the plot of docs/performance.md in two color schemes: `python docs/plots.py`."""

import re
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

DOCS: Final = Path(__file__).parent
SCHEMES: Final = {
    "light": {"text": "#1f2328", "muted": "#59636e", "own": "#3f51b5", "other": "#b8bfc9"},
    "dark": {"text": "#e6edf3", "muted": "#9198a1", "own": "#8c9eff", "other": "#59636e"},
}
SHORT: Final = {
    "`async for`": "asyncconsumer async for",
    "`chunks()`": "asyncconsumer chunks()",
    "`arrow()`, copied": "asyncconsumer arrow()",
    "aiokafka `async for`": "aiokafka async for",
    "aiokafka `getmany`": "aiokafka getmany",
    "confluent-kafka AIO `consume`, `fetch.queue.backoff.ms=1`": "confluent-kafka AIO consume",
    "kcat": "kcat",
    "Java's ConsumerPerformance, 10 million records, without its start": "Java ConsumerPerformance",
}
"""Rows of the table under *Consumers* that are drawn, with their labels."""

WIDTH: Final = 760
LABELS: Final = 230
ROW: Final = 28
TOP: Final = 46


class Bar(NamedTuple):
    """A consumer with its records per second, and its CPU seconds per million records."""

    label: str
    rate: str
    cpu: float


def bars() -> list[Bar]:
    """Return the rows to draw, the cheapest first."""
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    section = text.partition("\n## Consumers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| ([\d.]+) \| \d+ \|$", section, re.MULTILINE)
    drawn = [Bar(SHORT[name], rate, float(cpu)) for name, rate, cpu in rows if name in SHORT]
    if len(drawn) != len(SHORT):
        raise LookupError("docs/performance.md does not have all rows of the plot")
    return sorted(drawn, key=lambda bar: bar.cpu)


def plot(scheme: str) -> str:
    """Return the plot in a color scheme as SVG."""
    color, rows = SCHEMES[scheme], bars()
    scale = (WIDTH - LABELS - 190) / max(bar.cpu for bar in rows)
    height = TOP + ROW * len(rows) + 8
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'role="img" font-family="system-ui, sans-serif" font-size="13">'
        ),
        "<title>CPU seconds per million records</title>",
        (
            f'<text x="0" y="16" font-weight="600" fill="{color["text"]}">'
            "CPU seconds per million records of 100 bytes (less is better)</text>"
        ),
    ]
    for number, bar in enumerate(rows):
        y = TOP + ROW * number
        fill = color["own" if bar.label.startswith("asyncconsumer") else "other"]
        width = max(2.0, bar.cpu * scale)
        end = LABELS + width + 8
        lines += [
            (
                f'<text x="{LABELS - 10}" y="{y + 14}" text-anchor="end" fill="{color["text"]}">'
                f"{escape(bar.label)}</text>"
            ),
            f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="19" rx="2" fill="{fill}"/>',
            (
                f'<text x="{end:.1f}" y="{y + 14}" fill="{color["text"]}">{bar.cpu:.2f}'
                f'<tspan fill="{color["muted"]}">  {bar.rate} records/s</tspan></text>'
            ),
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    for name in SCHEMES:
        (DOCS / f"benchmark-{name}.svg").write_text(plot(name), encoding="utf-8")
