"""The command `asyncconsumer asyncapi`, which writes the AsyncAPI document of an app."""

import enum
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from asyncconsumer.errors import ConfigError
from asyncconsumer.workers.loading import load

_PLAIN_KEY: Final = re.compile(r"[A-Za-z$_][\w$./-]*")
_NOT_TEXT: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class DocumentFormat(enum.StrEnum):
    """The format of the document."""

    JSON = "json"
    YAML = "yaml"


Target = Annotated[
    str,
    typer.Argument(metavar="MODULE:APP", help="The ConsumerApp, such as shop.orders:app."),
]
Title = Annotated[
    str | None, typer.Option(help="Title of the document. Default: the group id of the app.")
]
Version = Annotated[str, typer.Option(metavar="VERSION", help="Version of the app's interface.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")
]
FormatOption = Annotated[
    DocumentFormat | None,
    typer.Option("--format", help="Default: yaml for a file named .yaml or .yml, otherwise json."),
]


def asyncapi_command(
    target: Target,
    *,
    title: Title = None,
    version: Version = "1.0.0",
    output: Output = None,
    format: FormatOption = None,  # noqa: A002 - the name of the option
) -> None:
    """Write the AsyncAPI 3 document of an app: its topics, and the types of its records.

    The document has the addresses of the bootstrap servers, but no user names and no passwords.
    The command imports the app and does not connect to Kafka.

    Example: asyncconsumer asyncapi shop.orders:app --output asyncapi.yaml
    """
    sys.path.insert(0, str(Path.cwd()))
    document = load(target).asyncapi(title=title, version=version)
    named_yaml = output is not None and output.suffix in (".yaml", ".yml")
    chosen = format or (DocumentFormat.YAML if named_yaml else DocumentFormat.JSON)
    is_yaml = chosen is DocumentFormat.YAML
    text = to_yaml(document) if is_yaml else json.dumps(document, indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from None


def to_yaml(document: dict[str, Any]) -> str:
    """Return an object that JSON can represent as YAML. Texts are quoted as in JSON."""
    return "".join(f"{line}\n" for line in _block(document))


def _block(value: Any, indent: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the YAML lines of a mapping or a list, which must not be empty."""
    if isinstance(value, dict):
        items = ((f"{indent}{_key(name)}:", each) for name, each in value.items())
    else:
        items = ((f"{indent}-", each) for each in value)
    for start, each in items:
        if not (isinstance(each, dict | list) and each):
            yield f"{start} {json.dumps(each, ensure_ascii=False)}"
            continue
        lines = _block(each, f"{indent}  ")
        yield start if isinstance(value, dict) else f"{start} {next(lines).lstrip()}"
        yield from lines


def _key(name: str) -> str:
    plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _NOT_TEXT
    return name if plain else json.dumps(name, ensure_ascii=False)
