"""The references of the site, generated from the package: options, errors and the API."""

import ast
import importlib
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from error_advice import ADVICE

import asyncconsumer
from asyncconsumer import errors
from asyncconsumer.config import OptionDoc, option_docs, options
from asyncconsumer.config.conversion import OBJECTS
from asyncconsumer.errors import ConsumerError

_EVERY_CLIENT: Final = "`Consumer`, `ConsumerApp` and `Producer`"
_CONSUMERS: Final = "`Consumer` and `ConsumerApp`"
OPTION_GROUPS: Final = (
    ("TLS and authentication", options.SecurityOptions, options.ConsumerOptions, _EVERY_CLIENT),
    ("Connections", options.ConnectionOptions, options.ConsumerOptions, _EVERY_CLIENT),
    ("Fetching", options.FetchOptions, options.ConsumerOptions, _CONSUMERS),
    ("Buffers, leaders and stalls", options.EngineOptions, options.ConsumerOptions, _CONSUMERS),
    ("Groups and commits", options.GroupOptions, options.ConsumerOptions, _CONSUMERS),
    ("Loops", options.MemberOptions, options.ConsumerOptions, "`Consumer`"),
    ("Delivery", options.DeliveryOptions, options.ConsumerOptions, "`Consumer`"),
    ("Producing", options.SendOptions, options.ProducerOptions, "`Producer`"),
    ("ZooKeeper groups", options.ZooKeeperOptions, options.ConsumerOptions, _CONSUMERS),
    ("Classic consumer", options.ClassicOptions, options.ClassicOptions, "`ConsumerConnector`"),
)
"""Sections of the page, each with its options, where their defaults are, and who takes them."""

_OPTIONS_INTRO: Final = """\
---
search:
  boost: 3
---

# Options

This page is generated from the options of the package. `asyncconsumer config explain NAME`
prints the same in a terminal. An option is a keyword argument, an environment variable or a line of
a file. [Configuration](../configuration.md) describes which one counts. The variable of an option
is `ASYNCCONSUMER_` and its name in capitals. In a file, a name has underscores or Kafka's dots.

A `ConsumerApp` has more keyword arguments, which are not options of the environment:
[`AppKeywords`](api-handlers.md#asyncconsumer.AppKeywords). Handlers have those of
[`handler`](api-handlers.md#asyncconsumer.ConsumerApp.handler). [Spark](../spark.md) has the options
of the data source.
"""

_MINOR: Final = "---\nsearch:\n  boost: 0.5\n---\n"
"""Search results of the API come after those of guides."""

_API_INTRO: Final = """\
# API

These are all public names of the package. [Versions and deprecation](../versioning.md) says what
may change. Names of other modules are internal.

"""

_ERRORS_INTRO: Final = """\
# Errors

This page is generated from `asyncconsumer.errors`. All errors have the root `ConsumerError`. Each
has its meaning, its message with *names* in place of values, and what to do. *Retriable* means that
the same call can succeed later. The client repeats its own requests after such errors, so they
reach a program only after their deadline.
"""

API_PAGES: Final = {
    "consumer": ("Consumer", ("consumer", "streams")),
    "handlers": ("Handlers", ("handlers", "web.status", "collections.abc")),
    "producer": ("Producer", ("producer",)),
    "records": ("Records and positions", ("records", "types", "fetch", "net")),
    "groups": ("Groups and offsets", ("group", "offsets")),
    "admin": ("Administration", ("admin",)),
    "configuration": ("Configuration and tokens", ("config", "auth")),
    "events": ("Events", ("events",)),
    "errors": ("Roots of errors", ("errors",)),
}
"""Pages for the names of `asyncconsumer`, by the modules that define them."""

API_MODULES: Final = (
    "browser",
    "compat.aiokafka",
    "config",
    "dashboard",
    "middlewares",
    "serdes",
    "spark",
    "testing",
    "testing.fake_kafka",
    "testing.fake_zookeeper",
    "testing.proxy",
    "testing.servers",
    "testing.virtual_time",
    "web.aiohttp",
)
"""Public modules with a page of their own."""


def options_page() -> str:
    """Return the reference of all options."""
    lines = [_OPTIONS_INTRO]
    shown: set[str] = set()
    for title, group, documented, users in OPTION_GROUPS:
        docs = option_docs(documented)
        lines += [f"## {title}\n", f"{inspect.getdoc(group)} For {users}.\n"]
        prefix = "classic-" if group is options.ClassicOptions else ""
        for name in group.__annotations__:
            if prefix + name not in shown:
                shown.add(prefix + name)
                lines.append(_option(docs[name], prefix))
    return "\n".join(lines)


def _option(doc: OptionDoc, prefix: str) -> str:
    default = "none" if doc.default is inspect.Parameter.empty else repr(doc.default)
    facts = [f"type `{doc.type_text}`", f"default `{default}`"]
    if doc.unit is not None:
        facts.append(doc.unit)
    facts.append("keyword only" if doc.name in OBJECTS else f"`ASYNCCONSUMER_{doc.name.upper()}`")
    text = doc.text.replace("``", "`")
    return f"### `{doc.name}` {{ #{prefix}{doc.name} }}\n\n{text}\n\n{' · '.join(facts)}\n"


def error_classes() -> Iterator[type[ConsumerError]]:
    """Yield all public error classes."""
    for member in vars(errors).values():
        if inspect.isclass(member) and issubclass(member, ConsumerError):
            yield member


def errors_page() -> str:
    """Return the reference of all errors: meaning, message with advice, and retries."""
    modules = defaultdict(list)
    for error in error_classes():
        modules[error.__module__].append(error)
    lines = [_ERRORS_INTRO]
    for module, members in modules.items():
        doc = inspect.getdoc(importlib.import_module(module)) or ""
        title = module.rpartition(".")[2].capitalize()
        lines += [f"## {title}\n", f"{doc.partition(chr(10) * 2)[0]}\n"]
        lines += [_error(error) for error in members]
    return "\n".join(lines)


def _error(error: type[ConsumerError]) -> str:
    lines = [f"### `{error.__name__}`\n", inspect.cleandoc(error.__doc__ or ""), ""]
    message = message_template(error)
    if message:
        lines += [f"> {message}\n"]
    advice = ADVICE.get(error.__name__)
    if advice:
        lines += [f"**What to do:** {advice}\n"]
    base = error.__mro__[1].__name__
    retriable = "yes" if error.retriable else "no"
    lines.append(f"Retriable: {retriable} · Base: `{base}`\n")
    return "\n".join(lines).replace("``", "`")


def message_template(error: type[ConsumerError]) -> str:
    """Return the message of an error, with names in place of values.

    Return an empty string if the class does not define its message.
    """
    method = vars(error).get("__str__")
    if method is None:
        return ""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.JoinedStr)
    ]
    return "".join(map(_part, strings[-1].values)) if strings else ""


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    value = node.value if isinstance(node, ast.FormattedValue) else node
    return f"*{ast.unparse(value).removeprefix('self.')}*"


def api_pages() -> dict[str, str]:
    """Return the pages of the API reference by path."""
    pages = {"reference/api.md": _API_INTRO}
    names: dict[str, list[str]] = {page: [] for page in API_PAGES}
    for name in asyncconsumer.__all__:
        names[_api_page(name)].append(name)
    index = []
    for page, (title, _) in API_PAGES.items():
        entries = sorted(names[page], key=lambda name: (not name[0].isupper(), name))
        blocks = [f"::: asyncconsumer.{name}\n" for name in entries]
        pages[f"reference/api-{page}.md"] = "\n".join([_MINOR, f"# {title}\n", *blocks])
        listed = ", ".join(f"`{name}`" for name in entries)
        index.append(f"| [{title}](api-{page}.md) | {listed} |")
    for module in API_MODULES:
        path = f"api-{module.replace('.', '-').replace('_', '-')}.md"
        pages[f"reference/{path}"] = _module_page(f"asyncconsumer.{module}")
        index.append(f"| [`asyncconsumer.{module}`]({path}) | {_summary(module)} |")
    pages["reference/api.md"] += "\n".join(["| page | contents |", "|---|---|", *index, ""])
    return pages


def _summary(module: str) -> str:
    doc = inspect.getdoc(importlib.import_module(f"asyncconsumer.{module}")) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def _module_page(module: str) -> str:
    """Return the page of a module, with the names in its `__all__` or with all its names."""
    imported = importlib.import_module(module)
    names = getattr(imported, "__all__", None)
    lines = [
        _MINOR,
        f"# {module}\n",
        f"::: {module}",
        "    options:",
        "      show_root_heading: false",
    ]
    if names is None:
        return "\n".join([*lines, ""])
    own = [name for name in names if _is_own(getattr(imported, name))]
    blocks = [f"::: {module}.{name}\n" for name in own]
    foreign = ", ".join(f"`{name}`" for name in names if name not in own)
    if foreign:
        blocks.append(f"From the other library: {foreign}.\n")
    return "\n".join([*lines, "      members: false", "", *blocks])


def _is_own(member: object) -> bool:
    module = getattr(member, "__module__", None)
    return not isinstance(module, str) or module.startswith("asyncconsumer")


def _api_page(name: str) -> str:
    """Return the page of the API reference that describes a name of `asyncconsumer`."""
    module = getattr(getattr(asyncconsumer, name), "__module__", "asyncconsumer.types")
    module = module.removeprefix("asyncconsumer.")
    for page, (_, prefixes) in API_PAGES.items():
        if any(f"{module}.".startswith(f"{prefix}.") for prefix in prefixes):
            return page
    raise LookupError(f"no page of the API reference has {name} of {module}: extend API_PAGES")
