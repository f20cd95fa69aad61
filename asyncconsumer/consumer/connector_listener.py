"""The rebalance listener of the classic API."""

from collections.abc import Collection, Mapping

from asyncconsumer.types import TopicPartition


class RebalanceListener:
    """A listener for rebalances, called in the order of changes. Override what you need.

    Fetching waits for the listener, so its methods should return soon. An exception ends the
    connector, and is raised where its streams are read.
    """

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Called for partitions that are stopped and committed, before they are released."""

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        """Called before new partitions are fetched. `owners` has the owner of each partition."""

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called when the session ended. Others may own the partitions, so nothing is committed."""
