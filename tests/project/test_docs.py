"""The documentation site: a strict build without a network, its references and its links."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from asyncconsumer import errors
from asyncconsumer.config import ConsumerOptions, ProducerOptions, option_docs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONSUMER = "commit committed seek pause resume position assignment subscribe health lifespan asgi"
SHOWN = {
    "reference/api-consumer.html": [f"asyncconsumer.Consumer.{name}" for name in CONSUMER.split()],
    "reference/api-handlers.html": [f"asyncconsumer.ConsumerApp.{n}" for n in ("lifespan", "asgi")],
    "reference/api-config.html": ["asyncconsumer.config.FetchConfig.fetch_max_bytes"],
    "reference/api-spark.html": [
        f"asyncconsumer.spark.{n}" for n in ("KafkaSource", "SparkFeeder")
    ],
    "reference/api-testing-virtual-time.html": ["asyncconsumer.testing.virtual_time.simulated"],
    "reference/options.html": [*option_docs(ConsumerOptions), *option_docs(ProducerOptions)],
}
"""Anchors of pages. Methods of `Consumer` are inherited, for the most part."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        check=True,
        cwd=ROOT,
        timeout=280,
        env={**os.environ, **nowhere, "no_proxy": "", "NO_MKDOCS_2_WARNING": "1"},
    )
    return folder


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8")))


def test_references_have_all_names(site: Path) -> None:
    for page, shown in SHOWN.items():
        assert set(shown) - anchors(site / page) == set(), page
    names = {
        name.lower()
        for name, member in vars(errors).items()
        if isinstance(member, type) and issubclass(member, errors.ConsumerError)
    }
    assert names - anchors(site / "reference" / "errors.html") == set()


def test_a_constructor_has_its_own_parameters(site: Path) -> None:
    text = (site / "reference" / "api-consumer.html").read_text(encoding="utf-8")
    shown = text.split('id="asyncconsumer.Consumer"')[1].split("</pre>")[0]
    signature = re.sub(r"<[^>]+>|\s", "", shown)
    assert "*topics:str,pattern:str" in signature
    assert "ConsumerOptions" in signature


def test_no_page_loads_a_resource_from_another_site(site: Path) -> None:
    loaded = (
        r'<(?:script|img|iframe|source)[^>]+src="?https?:'
        r'|<link[^>]+rel="?stylesheet[^>]*href="?https?:'
    )
    pages = [*site.rglob("*.html")]
    assert len(pages) > 40
    assert {page.name for page in pages if re.search(loaded, page.read_text("utf-8"))} == set()
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert not any("url(http" in style or "@import" in style for style in styles)


def test_every_local_link_has_a_file(site: Path) -> None:
    link = r'(?:href|src)="?([^"\s>#?:]+)["\s>#?]'
    missing = {
        f"{page.name}: {target}"
        for page in site.rglob("*.html")
        if page.name != "404.html"  # its links begin at the root of a server
        for target in re.findall(link, page.read_text(encoding="utf-8"))
        if not (page.parent / unquote(target)).exists()
    }
    assert missing == set()
    assert (site / "examples" / "service.py").exists()


def test_search_finds_options_and_guides(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titled = {entry["location"] for entry in index["docs"] if "revoke_grace_ms" in entry["title"]}
    assert "reference/options.html#revoke_grace_ms" in titled
    assert any("acknowledgement.html" in entry["location"] for entry in index["docs"])


def test_diagrams_are_drawn(site: Path) -> None:
    for name in ("concept-record", "concept-rebalance", "concept-fencing", "DESIGN"):
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        assert '<figure class="diagram"><svg' in text, name
        assert "mermaid</code>" not in text, name


@pytest.mark.fast
def test_test_modules_that_pages_name_exist() -> None:
    named = {
        path
        for page in (*DOCS.glob("*.md"), *ROOT.glob("*.md"))
        for path in re.findall(r"`(tests/[\w/.]+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert "tests/consumer/test_acknowledgement.py" in named
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.fast
def test_every_error_has_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    error_advice = importlib.import_module("error_advice")
    reference = importlib.import_module("reference")

    silent, classes = set(), [*reference.error_classes()]
    for error in classes:
        text = f"{error.__doc__} {reference.message_template(error)}"
        if not error.retriable and ". " not in text and error.__name__ not in error_advice.ADVICE:
            silent.add(error.__name__)
    assert silent == set(), "say it in the docstring or message, or in docs/error_advice.py"
    assert error_advice.ADVICE.keys() - {error.__name__ for error in classes} == set()


@pytest.mark.fast
def test_the_plot_has_the_figures_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    plots = importlib.import_module("plots")
    for scheme in plots.SCHEMES:
        drawn = (DOCS / f"benchmark-{scheme}.svg").read_text(encoding="utf-8")
        assert drawn == plots.plot(scheme), "run `python docs/plots.py`"
