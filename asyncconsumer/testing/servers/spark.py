"""The jars of Spark's own Kafka source: the peer to agree with, and to be measured against."""

from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers import maven

SPARK: Final = "4.2.0"
"""The newest Spark whose Kafka source is on Maven Central."""

# by hand: it says that it depends on a token provider of its own version, which was never published
_JARS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


async def kafka_source_jars(progress: maven.Progress = maven.no_progress) -> list[Path]:
    """For `spark.jars`, fetched unless the cache has them; pyspark brings the other ones."""
    coordinates = [f"{jar}{maven.ALONE}" for jar in _JARS]
    return await maven.class_path(f"Spark {SPARK} Kafka source", coordinates, progress)
