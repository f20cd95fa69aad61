"""The offsets at which reading ends because of the option `stop_at`."""

from collections.abc import Collection, Mapping

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.offset_queries import OffsetQueries
from asyncconsumer.consumer.subscription_spec import ManualPartitions, SubscriptionSpec
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.rebalance.ports import Ends, endless
from asyncconsumer.types import TopicPartition


async def ends_of(config: ConsumerConfig, spec: SubscriptionSpec, kafka: KafkaClient) -> Ends:
    """Return a function that returns the end offsets of partitions, as `stop_at` defines them.

    A `stop_at` mapping gives the ends of its partitions. For all others, the end is the log end
    when it is queried. Partitions of named topics and manual partitions are queried by this call.
    Partitions of a pattern, and those created later, are queried when they are assigned.
    """
    stop = config.delivery.stop_at
    if stop is None:
        return endless
    lookups = OffsetQueries(kafka.leaders, committed_only=config.fetch.committed_only)
    known: dict[TopicPartition, int]
    known = {} if isinstance(stop, str) else dict(stop)

    async def ends(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        new = [tp for tp in partitions if tp not in known]
        if new:
            known.update(await lookups.ends(new, LATEST))
        return {tp: known[tp] for tp in partitions if tp in known}

    if isinstance(spec, ManualPartitions):
        await ends(spec)
    elif isinstance(spec, TopicSubscription):
        topics = (await kafka.cluster.refresh(spec.names)).topics
        partitions = {name: topic.partitions for name, topic in topics.items()}
        await ends(
            [TopicPartition(name, n) for name, numbers in partitions.items() for n in numbers]
        )
    return ends
