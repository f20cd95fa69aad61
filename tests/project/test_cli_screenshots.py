"""The pictures of the command line: one for each command of docs/cli_screenshots.py, and shown."""

import importlib
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import typer

from asyncconsumer.cli.app import app
from asyncconsumer.config.redaction import REDACTED

pytestmark = pytest.mark.fast

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS: Any = typer.main.get_command(app)
PICTURES = sorted(DOCS.glob("cli-*.svg"))
SHOWN = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(cli-[^"]+)">'
    r'\s*<img alt="([^"]+)" src="(cli-[^"]+)">\s*</picture>'
)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("cli_screenshots")


def title(path: Path) -> str:
    """Return the command line that a picture names, as an SVG title and above its lines."""
    root = ET.parse(path).getroot()
    named = root.findtext("{*}title") or ""
    above = root.findtext("{*}text") or ""
    assert named == above.replace("\N{NO-BREAK SPACE}", " ")
    return named


def test_each_command_has_a_picture_in_each_scheme(program: Any) -> None:
    names = {f"{name}-{scheme}.svg" for name in program.COMMANDS for scheme in program.SCHEMES}
    assert {path.name for path in PICTURES} == names, "run `python docs/cli_screenshots.py`"


def test_pages_show_each_picture_once_and_describe_it(program: Any) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md")))
    shown = SHOWN.findall(pages)
    assert sorted((light, dark) for dark, _, light in shown) == sorted(
        (f"{name}-light.svg", f"{name}-dark.svg") for name in program.COMMANDS
    )
    assert len(re.findall(r"cli-\w+-(?:light|dark)\.svg", pages)) == 2 * len(shown)
    descriptions = {unescape(alt) for _, alt, _ in shown}
    assert len(descriptions) == len(shown)
    assert min(map(len, descriptions)) > 50


def frame(svg: str) -> tuple[str, ...]:
    """Return what a picture has from the program: its width, title, style and background."""
    parts = r'viewBox="0 0 (\d+) .*?(<title>.*?)\n\.cli-.*?</defs><rect fill="(#\w+)"'
    match = re.search(parts, svg, re.DOTALL)
    assert match
    return match.groups()


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_drawn_as_the_program_draws(path: Path, program: Any) -> None:
    name, _, scheme = path.stem.rpartition("-")
    assert title(path) == f"asyncconsumer {program.COMMANDS[name]}"
    drawn = program.picture(name, [program.Text("a line")], scheme)
    assert frame(path.read_text(encoding="utf-8")) == frame(drawn)


def test_titles_are_command_lines_that_the_parser_accepts() -> None:
    for line in {title(path) for path in PICTURES}:
        program, *words = shlex.split(line)
        assert program == "asyncconsumer"
        command = COMMANDS
        while commands := getattr(command, "commands", None):
            command = commands[words.pop(0)]
        with command.make_context(command.name, words):  # raises for an unknown option
            pass


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_loads_nothing_and_has_no_secret(path: Path, program: Any) -> None:
    text = path.read_text(encoding="utf-8")
    addresses = set(re.findall(r"[a-z]+://[^\"' <]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the namespace, which is not loaded
    assert re.findall(r"url\((?!#)|@import|@font-face|href|<script|<image", text) == []
    (secret,) = re.findall(r"PASSWORD=(\S+)", program.SETTINGS)
    assert secret not in text
    assert "127.0.0.1" not in text
    assert (REDACTED in text) == path.name.startswith("cli-config-")
