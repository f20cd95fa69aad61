"""A program that sends records at a steady rate. The value of each record is the time of sending.

`python -m benchmarks._sender SERVERS TOPIC RATE SECONDS`. The times are those of
`time.perf_counter_ns`, which all processes of a machine share. The value of the last record is 0.
"""

import sys
import time

from confluent_kafka import Producer

from benchmarks._producing import produce


def send(servers: str, topic: str, rate: int, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    started, sent = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < seconds:
        while sent < passed * rate:
            produce(producer, topic, b"%d" % time.perf_counter_ns())
            sent += 1
        producer.poll(0)
        time.sleep(max(0.0, started + (sent + 1) / rate - time.perf_counter()))
    produce(producer, topic, b"0")
    producer.flush()


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
