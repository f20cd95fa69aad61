"""The documentation of each option at run time: meaning, type, default and unit."""

import ast
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from asyncconsumer.config.classic import ClassicConfig
from asyncconsumer.config.connection import ConnectionConfig
from asyncconsumer.config.consumer import MemberConfig
from asyncconsumer.config.delivery import DeliveryConfig
from asyncconsumer.config.fetch import EngineConfig, FetchConfig
from asyncconsumer.config.options import ClassicOptions, ProducerOptions
from asyncconsumer.config.producer import SendConfig

_CONFIGS: Final = (ConnectionConfig, FetchConfig, EngineConfig, MemberConfig, DeliveryConfig)
_OTHER_CONFIGS: Final[Mapping[type, tuple[type, ...]]] = {
    ClassicOptions: (ClassicConfig,),
    ProducerOptions: (ConnectionConfig, SendConfig),
}
_UNITS: Final = {"_ms": "milliseconds", "_bytes": "bytes"}

C = TypeVar("C", bound=type)


class OptionDoc(NamedTuple):
    """The meaning, type, default and unit of one option."""

    name: str
    text: str
    """The meaning. Its first line is a summary. Empty if there is no source code."""
    type_text: str
    default: object
    """The default, or `inspect.Parameter.empty` if the option has none."""
    unit: str | None

    @property
    def summary(self) -> str:
        """The first line of the option's description."""
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        default = "" if self.default is inspect.Parameter.empty else f" = {self.default!r}"
        unit = f" ({self.unit})" if self.unit else ""
        lines = [f"{self.name}: {self.type_text}{default}{unit}"]
        return "\n    ".join([*lines, *self.text.splitlines()])


@cache
def option_docs(options: type) -> Mapping[str, OptionDoc]:
    """Return the documentation of all options of a TypedDict, by name."""
    defaults = _defaults(*_OTHER_CONFIGS.get(options, _CONFIGS))
    texts = _attribute_docstrings(options.__module__).get(options.__name__, {})
    hints = get_type_hints(options)
    return {
        name: OptionDoc(name, texts.get(name, ""), _type_text(hint), defaults[name], _unit(name))
        for name, hint in hints.items()
    }


def _unit(name: str) -> str | None:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)


def document_options(options: type) -> Callable[[C], C]:
    """Return a class decorator that appends the documentation of `options` to the docstring."""

    def decorate(cls: C) -> C:
        docs = "\n".join(map(str, option_docs(options).values()))
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nOptions:\n\n{docs}"
        return cls

    return decorate


def _defaults(*configs: type) -> dict[str, object]:
    missing = inspect.Parameter.empty
    return {
        field.name: missing if field.default is MISSING else field.default
        for config in (ClassicConfig, *configs)  # a consumer also has options of ZooKeeper
        for field in fields(config)
    }


@cache
def _attribute_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of attributes in a module, by class and attribute name.

    The attributes of base classes in the module are included. The docstrings are read from the
    source, because Python does not keep them, nor the bases of a TypedDict. If the source is not
    available, the result is empty.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # a distribution of compiled files
        return {}
    texts: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = (texts.get(base.id, {}) for base in node.bases if isinstance(base, ast.Name))
            texts[node.name] = dict(ChainMap(_own_docstrings(node), *bases))
    return texts


def _own_docstrings(node: ast.ClassDef) -> dict[str, str]:
    return {
        attribute.target.id: inspect.cleandoc(docstring.value.value)
        for attribute, docstring in pairwise(node.body)
        if isinstance(attribute, ast.AnnAssign)
        and isinstance(attribute.target, ast.Name)
        and isinstance(docstring, ast.Expr)
        and isinstance(docstring.value, ast.Constant)
        and isinstance(docstring.value.value, str)
    }


def _type_text(hint: Any) -> str:  # noqa: ANN401 - any type
    """Return a type hint as users write it: choices as strings, and classes by their names."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if hint is type(None):
        return "None"
    if not arguments:
        return str(getattr(hint, "__name__", hint))
    texts = [_type_text(argument) for argument in arguments]
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(texts))
    return f"{getattr(origin, '__name__', origin)}[{', '.join(texts)}]"
