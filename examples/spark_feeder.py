"""A feeder that writes orders as Parquet files, each order once.

Spark reads the folder as a table or as a file stream. Variables set the options of the consumer.

export ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092 ASYNCCONSUMER_GROUP_ID=lake
asyncconsumer run examples.spark_feeder:feeder --port 8080
"""

import os

from asyncconsumer import Consumer
from asyncconsumer.spark import LandingFolder, SparkFeeder

FOLDER = os.environ.get("FOLDER", "landing/orders")
TOPIC = os.environ.get("TOPIC", "orders")

consumer = Consumer.from_env(TOPIC, auto_offset_reset="earliest", commit_policy="manual")
feeder = SparkFeeder(consumer, LandingFolder(FOLDER), max_wait_ms=1000)
