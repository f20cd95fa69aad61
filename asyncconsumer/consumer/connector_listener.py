"""Who is told of rebalances."""

from collections.abc import Collection, Mapping

from asyncconsumer.types import TopicPartition


class RebalanceListener:
    """Told of every change, in the order in which it happens. Override what you need.

    Reading waits for it: be quick. An exception ends the connector, and is raised where its streams
    are read.
    """

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """They are no longer read and were committed; they are ours until this returns."""

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        """New ones are ours, and will be read; `owners` are the threads of the whole group."""

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """The session ended: they are somebody else's by now, and nothing may be committed."""
