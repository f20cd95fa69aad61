"""What can stand in the way of dividing partitions among the members of a group."""

from asyncconsumer.errors.base import ConsumerError


class UnevenSubscriptions(ConsumerError):
    """Round-robin as Kafka 0.8 and 0.9 have it does not divide partitions in such a group."""

    retriable = True  # the member that differs may leave or change

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.reason}: for roundrobin-0.8 every member must subscribe to the same topics, "
            "and have as many streams of one as of another. Make the subscriptions alike, or set "
            "another partition.assignment.strategy in every member"
        )


class MalformedConsumerProtocol(ConsumerError):
    """A member's subscription, an assignment or an assignor's user data makes no sense.

    ``what`` names which of them, ``position`` the byte where reading ended.
    """

    def __init__(self, what: str, position: int, reason: str) -> None:
        super().__init__(what, position, reason)
        self.what = what
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"malformed {self.what} at byte {self.position}: {self.reason}. See which client of "
            "the group wrote it: it does not follow Kafka's consumer protocol"
        )
