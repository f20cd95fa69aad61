"""A job for `spark-submit`: read a topic and copy it, in batch and streaming queries.

Arguments are the servers, the topic, the topic of the copy, and a folder. The job prints how many
records it has read from the topic, written to a table, and copied.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.spark import KafkaSource


def main(servers: str, topic: str, copy: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(KafkaSource)
    connection = {"kafka.bootstrap.servers": servers}

    def read(reader: Any, subscribe: str) -> DataFrame:
        options = {**connection, "subscribe": subscribe, "startingOffsets": "earliest"}
        data: DataFrame = reader.format("asyncconsumer").options(**options).load()
        return data

    def run(writer: Any, name: str) -> None:
        writer = writer.option("checkpointLocation", f"{folder}/{name}-checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()

    counts = [read(spark.read, topic).count()]
    stream = read(spark.readStream, topic)
    run(stream.writeStream.format("parquet").option("path", f"{folder}/table"), "table")
    counts.append(spark.read.parquet(f"{folder}/table").count())
    values = stream.select("value").writeStream.format("asyncconsumer")
    run(values.options(**connection, topic=copy), "copy")
    counts.append(read(spark.read, copy).count())
    spark.stop()
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
