"""The commands of `asyncconsumer config`: effective options, and their meaning."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from asyncconsumer.cli import text
from asyncconsumer.cli.shared_options import Json
from asyncconsumer.config import ConsumerConfig, ConsumerOptions, option_docs
from asyncconsumer.config.conversion import OBJECTS, check_name
from asyncconsumer.config.external import PREFIX, ExternalOptions
from asyncconsumer.config.option_docs import OptionDoc
from asyncconsumer.config.options import ProducerOptions
from asyncconsumer.config.redaction import redacted
from asyncconsumer.errors import ConfigError

config_app = typer.Typer(
    help="Show the options that the environment and a file set, and explain options.",
    no_args_is_help=True,
)


class EffectiveOption(NamedTuple):
    """An option with the value that a consumer would use. A secret value is redacted."""

    name: str
    value: Any
    origin: str


@config_app.command()
def show(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TOML file or Java properties file. Default: $ASYNCCONSUMER_CONFIG.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print the value and the origin of each option. Secrets are redacted.

    Environment variables override the file. If a consumer would refuse the options, the error is
    printed after them, and the exit code is 2.

    Example: asyncconsumer config show --config consumer.toml
    """
    external = ExternalOptions.read({}, config)
    error: ConfigError | None = None
    values = dict(external.options)
    try:
        with external.named_in_errors():
            values |= _values(ConsumerConfig.from_mapping(external.options))
    except ConfigError as caught:
        error = caught
    _print(_effective(external, values), as_json=json)
    if error is not None:
        raise error


@config_app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Option, such as fetch_min_bytes or fetch.min.bytes."),
    ],
    *,
    json: Json = False,
) -> None:
    """Print the meaning, type, default and unit of an option, and how to set it.

    Example: asyncconsumer config explain fetch_min_bytes
    """
    check_name(name)
    option = name.replace(".", "_")
    doc = {**option_docs(ProducerOptions), **option_docs(ConsumerOptions)}[option]
    if json:
        text.print_json(_fields(option, doc))
        return
    default = "none" if doc.default is inspect.Parameter.empty else repr(doc.default)
    lines = [option, *(f"  {line}".rstrip() for line in doc.text.splitlines()), ""]
    lines += [f"  type:        {doc.type_text}", f"  default:     {default}"]
    if doc.unit is not None:
        lines.append(f"  unit:        {doc.unit}")
    lines.append(f"  keyword:     {option}=...")
    if option in OBJECTS:
        lines.append("  A keyword is the only way to set it, because it is a Python object.")
    else:
        lines.append(f"  environment: {PREFIX}{option.upper()}")
        lines.append(f"  file:        {option} or {option.replace('_', '.')}")
    typer.echo("\n".join(lines))


def _fields(option: str, doc: OptionDoc) -> dict[str, Any]:
    is_object = option in OBJECTS
    return {
        "option": option,
        "text": doc.text,
        "type": doc.type_text,
        "default": None if doc.default is inspect.Parameter.empty else repr(doc.default),
        "unit": doc.unit,
        "environment": None if is_object else f"{PREFIX}{option.upper()}",
    }


def _values(config: ConsumerConfig) -> dict[str, Any]:
    """Return the values of all options in a config. Defaults derived from others are included."""
    parts: tuple[Any, ...] = (
        config.connection,
        config.fetch,
        config.engine,
        config.member,
        config.delivery,
    )
    if config.zookeeper is not None:
        parts = (config.zookeeper, *parts)
    names = option_docs(ConsumerOptions)
    values = {
        field.name: getattr(part, field.name)
        for part in parts
        for field in fields(part)
        if field.name in names
    }
    if config.zookeeper is not None:  # its brokers may be known only after it is connected
        values["bootstrap_servers"] = config.zookeeper.bootstrap_servers
    return values


def _effective(external: ExternalOptions, values: dict[str, Any]) -> list[EffectiveOption]:
    result = []
    for name, doc in option_docs(ConsumerOptions).items():
        default = None if doc.default is inspect.Parameter.empty else doc.default
        value = redacted(name, values.get(name, default))
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        result.append(EffectiveOption(name, value, external.origin(name)))
    return sorted(result, key=lambda option: option.origin == "default")


def _print(options: list[EffectiveOption], *, as_json: bool) -> None:
    if as_json:
        text.print_json(
            {name: {"value": value, "origin": origin} for name, value, origin in options}
        )
        return
    table = text.table("option", "value", "origin")
    for name, value, origin in options:
        style = "dim" if origin == "default" else ""
        table.add_row(*(text.cell(entry, style) for entry in (name, value, origin)))
    text.console().print(table)
