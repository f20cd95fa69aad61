"""A Spark standalone cluster from the jars of pyspark: a master and isolated workers.

async with SparkCluster() as cluster:
    with spark_session(cluster.master, python="python3") as spark: ...
"""

import asyncio
import json
import os
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers.java import find_java, java_command
from asyncconsumer.testing.servers.node import Node, Servers
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.testing.servers.process import ServerProcess, together
from asyncconsumer.testing.servers.spark import SCALA

_PACKAGE: Final = "org.apache.spark.deploy"
# as in the scripts of Spark, which uses internal packages of Java
_OPENED: Final = ("java.lang", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch")


class SparkNode(Node):
    """The master or a worker of a Spark cluster."""

    def __init__(self, process: ServerProcess, port: int, page_port: int) -> None:
        super().__init__(process)
        self.port = port
        self.page = f"http://{HOST}:{page_port}/json/"

    async def state(self) -> "dict[str, object] | None":
        """Return the state that the node's web page shows, or None if it does not respond."""
        return await asyncio.to_thread(_load, self.page)

    async def is_serving(self) -> bool:
        """Return whether the node's web page responds, which is the last part of it to start."""
        return await self.state() is not None


class SparkCluster(Servers):
    """A Spark master and workers, for `spark_session(cluster.master)`.

    Workers and executors do not inherit the environment variables of this process, and run in their
    own folder. `path` is the search path in which they find a `python3`.
    """

    def __init__(
        self, *, workers: int = 2, cores: int = 1, path: str = os.defpath, memory: str = "1g"
    ) -> None:
        super().__init__()
        self.nodes: list[SparkNode] = []
        self._workers = workers
        self._share = ("--cores", str(cores), "--memory", memory)
        self._path = path

    @property
    def master(self) -> str:
        """The URL of the Spark master."""
        return f"spark://{HOST}:{self.nodes[0].port}"

    def logs(self) -> str:
        """Return the output of all executors and their Python workers."""
        assert self._folder is not None
        files = sorted(self._folder.glob("worker-*/app-*/*/std*"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    async def start(self) -> None:
        """Start all nodes, and wait until the master knows all workers.

        If a node fails to start, stop all of them.
        """
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="asyncconsumer-spark-"))
            master = self._node("master", "master.Master")
            await master.start()
            workers = [
                self._node(f"worker-{n}", "worker.Worker", *self._share, self.master)
                for n in range(self._workers)
            ]
            await together(*(worker.start() for worker in workers))
            async with asyncio.timeout(60):
                while not await self._is_whole():
                    await asyncio.sleep(0.05)
        except BaseException:
            await self.stop()
            raise

    async def _is_whole(self) -> bool:
        state = await self.nodes[0].state() or {}
        return state.get("aliveworkers") == self._workers

    def _node(self, name: str, main: str, *arguments: str) -> SparkNode:
        assert self._folder is not None
        folder = self._folder / name
        folder.mkdir()
        port, page_port = self._ports.take(), self._ports.take()
        address = ["--host", HOST, "--port", str(port), "--webui-port", str(page_port)]
        if arguments:
            address += ["--work-dir", str(folder)]
        java = self._java(f"{_PACKAGE}.{main}", [*address, *arguments])
        process = ServerProcess(f"Spark {name}", java, folder, self._folder)
        self.nodes.append(SparkNode(process, port, page_port))
        return self.nodes[-1]

    def _java(self, main: str, arguments: Sequence[str]) -> list[str]:
        import pyspark

        home = Path(pyspark.__file__).parent
        command = java_command(
            find_java(oldest=17), [home / "jars" / "*"], main, *arguments, heap="256m"
        )
        command[1:1] = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        known = {
            "PATH": self._path,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SCALA_VERSION": SCALA,
        }
        variables = [f"{name}={value}" for name, value in known.items()]
        return ["/usr/bin/env", "-i", *variables, *command]

    def _members(self) -> list[SparkNode]:
        return self.nodes

    def _forget(self) -> None:
        self.nodes.clear()


def _load(page: str) -> "dict[str, object] | None":
    try:
        with urllib.request.urlopen(page, timeout=5) as answer:  # noqa: S310 - an address of this module
            state: dict[str, object] = json.load(answer)
            return state
    except (OSError, ValueError):
        return None
