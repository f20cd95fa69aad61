"""A Spark streaming job that writes orders to a Parquet folder and sums their amounts by customer.

The options and the checkpoints are those of Spark's own Kafka source.

spark-submit examples/spark_stream.py localhost:9092 orders sums checkpoints
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from asyncconsumer.spark import KafkaSource


def orders(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return the stream of orders. The values are parsed from JSON."""
    spark.dataSource.register(KafkaSource)
    return (
        spark.readStream.format("asyncconsumer")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .schema("value struct<customer string, amount int>")
        .load()
    )


def run(spark: SparkSession, servers: str, topic: str, table: str, checkpoints: str) -> None:
    """Write all new orders to a Parquet folder, then print the sums of all orders.

    The next run continues after the orders of this run.
    """
    query = (
        orders(spark, servers, topic)
        .select("value.customer", "value.amount")
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoints)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    spark.read.parquet(table).groupBy("customer").sum("amount").show()


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), *sys.argv[1:5])
