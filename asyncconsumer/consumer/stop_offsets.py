"""Where a consumer that is to end stops reading each partition."""

from collections.abc import Collection, Mapping

from asyncconsumer.config import ConsumerConfig
from asyncconsumer.consumer.offset_queries import OffsetQueries
from asyncconsumer.consumer.subscription_spec import ManualPartitions, Wish
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.subscription import TopicSubscription
from asyncconsumer.protocol.messages import LATEST
from asyncconsumer.rebalance.ports import Ends, endless
from asyncconsumer.types import TopicPartition


async def ends_of(config: ConsumerConfig, wish: Wish, kafka: KafkaClient) -> Ends:
    """By the option `stop_at`. For its "end", logs are looked at now.

    What comes to a member later, because another one left, ends where it would have there; only
    partitions of which nobody could know yet, as those of a pattern, are looked at when they come.
    Those that `stop_at` leaves out end where they end.
    """
    stop = config.reading.stop_at
    if stop is None:
        return endless
    lookups = OffsetQueries(kafka.leaders, committed_only=config.fetch.committed_only)
    known: dict[TopicPartition, int]
    known = {} if isinstance(stop, str) else dict(stop)

    async def ends(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        new = [one for one in partitions if one not in known]
        if new:
            known.update(await lookups.ends(new, LATEST))
        return {one: known[one] for one in partitions if one in known}

    if isinstance(wish, ManualPartitions):
        await ends(wish)
    elif isinstance(wish, TopicSubscription):
        topics = (await kafka.cluster.refresh(wish.names)).topics
        there = {name: topic.partitions for name, topic in topics.items()}
        await ends([TopicPartition(name, n) for name, numbers in there.items() for n in numbers])
    return ends
