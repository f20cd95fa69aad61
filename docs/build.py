"""Build the API documentation: `python docs/build.py FOLDER`."""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pdoc
import pdoc.render

MODULES: Final = (
    "asyncconsumer",
    "asyncconsumer.config",
    "asyncconsumer.errors",
    "asyncconsumer.events",
    "asyncconsumer.middlewares",
    "asyncconsumer.serdes",
    "asyncconsumer.spark",
    "asyncconsumer.testing",
    "asyncconsumer.testing.fake_kafka",
    "asyncconsumer.testing.fake_zookeeper",
    "asyncconsumer.testing.proxy",
    "asyncconsumer.testing.servers",
    "asyncconsumer.testing.virtual_time",
    "asyncconsumer.web.aiohttp",
)
_LEFT_OUT: Final = ("!asyncconsumer.testing.plugin",)


def build(folder: Path) -> None:
    """Write a page for each module."""
    for name in MODULES:
        _prepare(importlib.import_module(name))
    pdoc.render.configure(
        docformat="markdown", template_directory=Path(__file__).parent / "templates"
    )
    pdoc.pdoc(*MODULES, *_LEFT_OUT, output_directory=folder)


def _prepare(module: ModuleType) -> None:
    """Import the lazy members of a module, and remove the generic bases of its classes.

    pdoc looks for a member in the bases of a generic class before it looks in the class itself.
    Then the page would show the constructor of a base.
    """
    for name in getattr(module, "__all__", ()):
        member = getattr(module, name)
        setattr(module, name, member)
        if inspect.isclass(member) and "__orig_bases__" in vars(member):
            member.__orig_bases__ = ()  # type: ignore[attr-defined] # only generic classes have it


if __name__ == "__main__":
    build(Path(sys.argv[1]))
