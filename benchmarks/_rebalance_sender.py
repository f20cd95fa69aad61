"""A program that writes a record to every partition of a topic, repeatedly, until it is killed.

`python -m benchmarks._rebalance_sender SERVERS TOPIC PARTITIONS MILLISECONDS` writes once in
MILLISECONDS. It uses aiokafka's producer, which puts the records of all partitions into one request
and so needs little CPU time.
"""

import asyncio
import sys
import time

from aiokafka import AIOKafkaProducer


async def send(servers: str, topic: str, partitions: int, seconds: float) -> None:
    now = asyncio.get_running_loop().time
    async with AIOKafkaProducer(bootstrap_servers=servers, acks=1) as producer:
        due = now()
        while True:
            value = b"%d" % time.time_ns()
            for partition in range(partitions):
                await producer.send(topic, value, partition=partition)
            due = max(due + seconds, now())
            await asyncio.sleep(due - now())


if __name__ == "__main__":
    asyncio.run(send(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) / 1000))
