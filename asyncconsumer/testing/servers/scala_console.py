"""Kafka's old console consumer with the option `--zookeeper`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.classic import ClassicMember, fetch
from asyncconsumer.testing.servers.java import find_java, java_command

_SEPARATOR: Final = "\x1e"  # marks the records among the lines of the log


class ScalaConsole(ClassicMember):
    """A `kafka-console-consumer --zookeeper` with one stream of the topics that match a white list.

    The program starts at the end of a log unless the group has committed offsets. If the group has
    committed offsets, the program refuses to run with `auto.offset.reset=smallest`.
    """

    def __init__(
        self,
        zookeeper: str,
        group: str,
        white_list: str,
        *,
        name: str = "",
        properties: Mapping[str, str] | None = None,
        progress: maven.Progress = maven.no_progress,
    ) -> None:
        super().__init__(zookeeper, group, name, properties or {})
        self._white_list = white_list
        self._progress = progress
        self._log = ""  # up to the end of the process

    @property
    def values(self) -> list[str]:
        """The record values that the program has printed since its last start."""
        lines = self._written().split("\n")
        return [line.partition(_SEPARATOR)[2] for line in lines if _SEPARATOR in line]

    async def _command(self, folder: Path, properties: Path) -> list[str]:
        arguments = (
            *(
                "--zookeeper",
                self._properties["zookeeper.connect"],
                "--whitelist",
                self._white_list,
            ),
            *("--consumer.config", str(properties), "--property", "print.key=true"),
            *("--property", f"key.separator={_SEPARATOR}"),
        )
        jars = await fetch(self._progress)
        main = "kafka.tools.ConsoleConsumer"
        return java_command(find_java(), jars, main, *arguments, heap="128m")

    def _is_ready(self) -> bool:
        return "end rebalancing consumer" in self._written()

    def _written(self) -> str:
        if self._process is not None:
            self._log = self._process.log.read_text(encoding="utf-8", errors="replace")
        return self._log

    def _forget(self) -> None:
        self._written()
        super()._forget()
