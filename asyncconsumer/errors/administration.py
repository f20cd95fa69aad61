"""Errors of the admin client: error codes of brokers, and a group that is in use."""

from collections.abc import Sequence

from asyncconsumer.errors.base import ConsumerError
from asyncconsumer.errors.broker import BrokerError


class TopicAlreadyExists(BrokerError, code=36):
    """The topic already exists."""


class InvalidPartitions(BrokerError, code=37):
    """The number of partitions is not valid. An existing topic can only get more partitions."""


class InvalidReplicationFactor(BrokerError, code=38):
    """The replication factor is larger than the number of brokers, or not positive."""


class InvalidTopicConfig(BrokerError, code=40):
    """The name or the value of a topic config is not valid."""


class NotController(BrokerError, code=41, retriable=True):
    """The controller has moved to another broker. Refresh the metadata."""


class PolicyViolation(BrokerError, code=44):
    """A policy of the cluster forbids the request. Ask its operator."""


class NonEmptyGroup(BrokerError, code=68):
    """The group has members, so it cannot be changed or deleted. Stop them first."""


class TopicDeletionDisabled(BrokerError, code=73):
    """The cluster does not delete topics. See the broker config delete.topic.enable."""


class PreferredLeaderNotAvailable(BrokerError, code=80):
    """The preferred replica is down or not in sync."""


class ElectionNotNeeded(BrokerError, code=84):
    """The preferred replica is the leader already."""


class GroupSubscribedToTopic(BrokerError, code=86):
    """Members of the group subscribe to the topic, so its offsets cannot be deleted."""


class GroupActive(ConsumerError):
    """A group has live members, so its offsets cannot be changed."""

    def __init__(self, group: str, members: Sequence[str]) -> None:
        super().__init__(group, tuple(members))
        self.group = group
        self.members = tuple(members)

    def __str__(self) -> str:
        names = ", ".join(self.members[:3]) + (" ..." if len(self.members) > 3 else "")
        return (
            f"group {self.group!r} has live members ({names}), which commit offsets themselves. "
            "Stop them first, and repeat the call"
        )
