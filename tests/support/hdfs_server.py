"""A real HDFS for tests: a NameNode and a DataNode from the jars of Maven Central and pyspark."""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from hdfs_native import Client

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.java import find_java, java_command
from asyncconsumer.testing.servers.ports import HOST, Ports
from asyncconsumer.testing.servers.process import ServerProcess
from tests.support.s3_server import run_in_thread

_SERVERS: Final = "org.apache.hadoop.hdfs.server"
_OF_SPARK: Final = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "commons-cli")


@dataclass(frozen=True)
class Hdfs:
    """A running HDFS."""

    url: str
    page: str  # the address of the NameNode's HTTP server

    def folder(self) -> str:
        """Return the URL of a new folder."""
        return f"{self.url}/{uuid4().hex}"

    def client(self) -> Client:
        """Return a client, as other programs have one."""
        return Client(self.url)

    def names(self, folder: str, below: str = "") -> list[str]:
        """Return the names of the files in a folder, or in a folder below it."""
        path = f"/{folder.rpartition('/')[2]}/{below}".rstrip("/")
        entries = self.client().list_status(path)
        return sorted(entry.path.rpartition("/")[2] for entry in entries if not entry.isdir)

    def landed(self, folder: str) -> pa.Table:
        """Return the table that Spark would read.

        It is read by HTTP, because hdfs-native keeps the connections of readers.
        """
        path = f"http://{self.page}/webhdfs/v1/{folder.rpartition('/')[2]}"
        tables = []
        for name in self.names(folder):
            with urllib.request.urlopen(f"{path}/{name}?op=OPEN", timeout=30) as answer:
                tables.append(pq.read_table(pa.BufferReader(answer.read())))
        return pa.concat_tables(tables)


async def _jars() -> list[Path]:
    spark = Path(pyspark.__file__).parent / "jars"
    jars = [next(spark.glob(f"{name}-[0-9]*.jar")) for name in _OF_SPARK]
    version = jars[0].stem.rpartition("-")[2]
    coordinates = [
        f"org.apache.hadoop:hadoop-client-minicluster:{version}{maven.ALONE}",
        f"commons-logging:commons-logging:1.3.5{maven.ALONE}",
    ]
    return jars + await maven.class_path(f"HDFS {version}", coordinates)


def _configure(folder: Path, settings: dict[str, str]) -> None:
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / name).write_text(f"<configuration>{properties}</configuration>")


@contextmanager
def hdfs_server(folder: Path) -> Iterator[Hdfs]:
    """Run an HDFS with its data below `folder` until the block ends."""
    ports = Ports()
    numbers = [ports.take() for _ in range(5)]
    address, page, *of_data = (f"{HOST}:{port}" for port in numbers)
    names = ("dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address")
    settings = {
        "fs.defaultFS": f"hdfs://{address}",
        "hadoop.tmp.dir": str(folder / "files"),
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.http-address": page,
        **dict(zip(names, of_data, strict=True)),
    }
    nodes: list[ServerProcess] = []
    try:
        _configure(folder, settings)
        command = partial(_command, [folder, *run_in_thread(_jars())])
        form = command("namenode.NameNode", "-format", "-nonInteractive")
        subprocess.run(form, check=True, capture_output=True)
        for count, main in enumerate(("namenode.NameNode", "datanode.DataNode")):
            node = ServerProcess(f"HDFS {main}", command(main), _made(folder / main), folder)
            run_in_thread(node.start(partial(asyncio.to_thread, _serves, page, count)))
            nodes.append(node)
        yield Hdfs(settings["fs.defaultFS"], page)
    finally:
        for node in nodes:
            run_in_thread(node.kill())
        ports.close()


def _command(jars: list[Path], main: str, *arguments: str) -> list[str]:
    return java_command(find_java(oldest=17), jars, f"{_SERVERS}.{main}", *arguments, heap="256m")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _serves(page: str, data_nodes: int) -> bool:
    """Return whether the NameNode responds, and has that many live DataNodes."""
    bean = f"http://{page}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(bean, timeout=5) as answer:
            (state,) = json.load(answer)["beans"]
    except (OSError, ValueError):
        return False
    return bool(state["NumLiveDataNodes"] >= data_nodes and state["FSState"] == "Operational")


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as server:
        list(server.client().list_status("/"))  # starts the threads of hdfs-native
        yield server
