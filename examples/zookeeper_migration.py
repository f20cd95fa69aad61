"""A consumer that moves from a ZooKeeper group to a Kafka group, by its configuration.

First it joins the ZooKeeper group, beside members that use the Scala consumer:

export ASYNCCONSUMER_GROUP_ID=billing ASYNCCONSUMER_GROUP_PROTOCOL=zookeeper
export ASYNCCONSUMER_ZOOKEEPER_CONNECT=localhost:2181
python -m examples.zookeeper_migration

When all members are stopped, the offsets are copied, and the members start again with Kafka:

asyncconsumer groups migrate billing --zookeeper localhost:2181 --from zookeeper --to kafka --yes
export ASYNCCONSUMER_GROUP_PROTOCOL=classic ASYNCCONSUMER_BOOTSTRAP_SERVERS=localhost:9092
unset ASYNCCONSUMER_ZOOKEEPER_CONNECT
python -m examples.zookeeper_migration
"""

import asyncio
import os
import signal

from asyncconsumer import Consumer

TOPIC = os.environ.get("TOPIC", "orders")


async def main() -> None:
    """Print records until SIGTERM. The loop is the same for both kinds of groups."""
    async with Consumer.from_env(TOPIC, auto_offset_reset="earliest") as consumer:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        async for record in consumer:
            print(record.partition, record.offset, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
