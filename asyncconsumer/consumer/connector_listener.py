"""The rebalance listener of the classic API."""

from collections.abc import Collection, Mapping

from asyncconsumer.types import TopicPartition


class RebalanceListener:
    """A listener that is called at each change of the assignment. Override the methods you need.

    Fetching waits for the listener, so its methods should return soon. An exception ends the
    connector, and is raised where its streams are read.
    """

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Called before partitions are released.

        Their records are not delivered any more, and their acknowledged offsets are committed.
        """

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        """Called before newly assigned partitions are fetched.

        `consumer_id` is this member. `owners` maps each partition to the consumer id of its owner.
        """

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called after the ZooKeeper session has expired.

        Other members may own the partitions, so nothing is committed.
        """
