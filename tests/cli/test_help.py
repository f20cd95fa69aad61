"""The commands as a whole: help texts with examples, JSON, connection options."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from asyncconsumer.cli.app import app

pytestmark = pytest.mark.fast

WITHOUT_JSON = {
    "asyncapi": "it always writes a document",
    "dashboard": "it runs until it is stopped",
    "demo": "it prints a show",
    "dlq export": "it always writes JSON",
    "run": "it runs until it is stopped, and has --log-format json",
    "servers fetch": "it only downloads",
    "spark-compile": "it changes a file",
    "spark-package": "it writes a file",
    "top": "it draws a screen",
}
"""Commands without --json, with the reasons."""


def commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS: dict[str, Any] = dict(commands(typer.main.get_command(app)))


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_examples_that_can_be_parsed(name: str) -> None:
    lines = [line.strip() for line in (COMMANDS[name].help or "").splitlines()]
    examples = [line.removeprefix("Example: ") for line in lines if line.startswith("Example: ")]
    assert examples
    for example in examples:
        program = example.rpartition("|")[2].strip()
        words = shlex.split(program)
        assert words[: 1 + len(name.split())] == ["asyncconsumer", *name.split()]
        command, arguments = COMMANDS[name], words[1 + len(name.split()) :]
        with command.make_context(name, arguments):  # raises for an unknown option
            pass


def test_commands_print_json() -> None:
    without = {name for name, command in COMMANDS.items() if "--json" not in options(command)}
    assert without == WITHOUT_JSON.keys()


def test_commands_on_a_cluster_have_the_same_connection_options() -> None:
    for name, command in COMMANDS.items():
        if "--bootstrap-servers" in options(command):
            assert {"-b", "--properties", "--property"} <= options(command), name


@pytest.mark.parametrize("name", ["lag", "consume", "top", "dashboard"])
def test_groups_can_be_in_zookeeper(name: str) -> None:
    assert "--zookeeper" in options(COMMANDS[name])


def test_all_commands_of_groups_can_be_used_with_zookeeper() -> None:
    for name, command in COMMANDS.items():
        if name.startswith("groups "):
            assert "--zookeeper" in options(command), name


def test_each_option_has_a_help_text() -> None:
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if not getattr(parameter, "hidden", False):
                assert parameter.help, f"{name} {parameter.opts}"


def test_options_of_groups_in_zookeeper_have_a_heading() -> None:
    names = {"--consumer-id", "--streams", "--assignor", "--offsets-storage", "--blacklist"}
    panels = {
        parameter.rich_help_panel
        for parameter in COMMANDS["consume"].params
        if names & set(parameter.opts)
    }
    assert panels == {"Groups in ZooKeeper"}
