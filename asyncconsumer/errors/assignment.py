"""Errors of assignors, and of the subscriptions and assignments that members exchange."""

from asyncconsumer.errors.base import ConsumerError


class UnevenSubscriptions(ConsumerError):
    """Members subscribe to different topics, which Kafka 0.8's round-robin does not support."""

    retriable = True  # the member that differs may leave or change

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.reason}: with roundrobin-0.8 every member must subscribe to the same topics, "
            "with the same number of streams for each topic. Make the subscriptions equal, or set "
            "another `partition_assignment_strategy` in every member"
        )


class MalformedConsumerProtocol(ConsumerError):
    """A subscription, an assignment or the user data of an assignor cannot be parsed.

    ``kind`` says which of the three it is. ``position`` is the byte at which parsing stopped.
    """

    def __init__(self, kind: str, position: int, reason: str) -> None:
        super().__init__(kind, position, reason)
        self.kind = kind
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"malformed {self.kind} at byte {self.position}: {self.reason}. A client in this group "
            "does not follow Kafka's consumer protocol. Find and fix the client that wrote it"
        )
