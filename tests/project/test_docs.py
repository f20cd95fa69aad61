"""`make docs` builds pages that have what users call."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSUMER = (
    "__init__ commit committed seek pause resume position assignment subscribe health lifespan asgi"
)
SHOWN = {
    "asyncconsumer.html": [
        *(f"Consumer.{name}" for name in CONSUMER.split()),
        *(f"ConsumerApp.{name}" for name in ("__init__", "lifespan", "asgi")),
        "SimpleConsumer.__init__",
    ],
    "asyncconsumer/config.html": ["ConnectionConfig.ssl_context", "FetchConfig.fetch_max_bytes"],
    "asyncconsumer/spark.html": ["KafkaSource", "SparkFeeder.__init__", "SparkFeeder.run", "lag"],
    "asyncconsumer/errors/base.html": ["ConfigError"],
    "asyncconsumer/testing/virtual_time.html": ["simulated"],
}


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", folder], check=True, cwd=ROOT, timeout=240
    )
    return folder


def test_every_page_has_its_members(docs: Path) -> None:
    for page, members in SHOWN.items():
        ids = set(re.findall(r'id="([^"]+)"', (docs / page).read_text(encoding="utf-8")))
        assert set(members) <= ids, page


def test_a_constructor_has_its_own_parameters(docs: Path) -> None:
    text = (docs / "asyncconsumer.html").read_text(encoding="utf-8")
    shown = text.split('<div id="Consumer.__init__"')[1].split("</label>")[0]
    signature = re.sub(r"<[^>]+>|\s", "", shown)
    assert "*topics:str,pattern:str" in signature
    assert "ConsumerOptions" in signature


def test_the_makefile_builds_these_pages() -> None:
    assert "docs/build.py build/docs" in (ROOT / "Makefile").read_text(encoding="utf-8")
