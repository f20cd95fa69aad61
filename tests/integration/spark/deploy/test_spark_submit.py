"""A job that `spark-submit` sends to a cluster, from a Python that lacks the package."""

import asyncio
import os
from pathlib import Path

import pyspark

from asyncconsumer.spark.deploy.packaging import package
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.testing.servers.ports import HOST
from asyncconsumer.testing.servers.spark import EXECUTORS, SCALA
from asyncconsumer.testing.servers.spark_cluster import SparkCluster
from tests.support import spark_job
from tests.support.bare_python import bare_python
from tests.support.real_consumer import send


async def test_streams_need_no_package_on_the_driver(kafka: KafkaHandle, tmp_path: Path) -> None:
    topic, copy = await kafka.topic(partitions=2), await kafka.topic()
    await send(kafka, topic, range(100), 2)
    python = str(bare_python(tmp_path / "python", without=("aiokafka", "cramjam")))
    archive = package(tmp_path / "asyncconsumer.zip")
    home = Path(pyspark.__file__).parent
    config = {**EXECUTORS, "spark.driver.host": HOST, "spark.ui.enabled": "false"}
    variables = {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_SCALA_VERSION": SCALA,
    }
    async with SparkCluster() as cluster:
        submission = await asyncio.create_subprocess_exec(
            *(str(home / "bin" / "spark-submit"), "--master", cluster.master),
            *(part for setting in config.items() for part in ("--conf", "=".join(setting))),
            *("--py-files", str(archive), str(Path(spark_job.__file__))),
            *(kafka.bootstrap_servers, topic, copy, str(tmp_path)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | variables,
            cwd=tmp_path,
        )
        output, log = await submission.communicate()
    assert output == b"[100, 100, 100]", log.decode()
    assert submission.returncode == 0
