"""Sends records at a steady rate, each with the time of its sending for a value; 0 is the last.

`python -m benchmarks._sender SERVERS TOPIC RATE SECONDS`. The clock is that of the whole machine.
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
