"""What members of a classic group tell each other, and what the leader decides."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from asyncconsumer.errors import ConfigError, InconsistentGroupProtocol, MalformedConsumerProtocol
from asyncconsumer.group.assignors import Assignor, MemberSubscription, Racks
from asyncconsumer.protocol.subscription_codec import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from asyncconsumer.types import Address, MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)


class JoinResult(NamedTuple):
    """What the answer to JoinGroup says."""

    identity: MemberIdentity
    protocol: str
    leads: bool
    decides: bool  # a leader that came back need not, where nothing changed
    members: Sequence[Mapping[str, Any]]
    address: Address  # of the coordinator

    @classmethod
    def of(
        cls, answer: Mapping[str, Any], instance_id: str | None, address: Address
    ) -> "JoinResult":
        """It by name, whatever its version."""
        leads = answer["leader"] == answer["member_id"]
        return cls(
            MemberIdentity(answer["member_id"], answer["generation"], instance_id),
            answer["protocol"] or "",
            leads,
            leads and not answer.get("skip_assignment", False),
            answer["members"] or (),
            address,
        )


class GroupLeader:
    """The assignors of one member, the one that it likes best first."""

    def __init__(self, assignors: Sequence[Assignor], rack: str) -> None:
        if not assignors:
            raise ConfigError("a member of a group needs an assignor, e.g. [RangeAssignor()]")
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._rack = rack or None

    @property
    def cooperative(self) -> bool:
        """Whether members keep what they own as they join: all of our assignors must allow it.

        A group is moved to a cooperative assignor one member after the other: as long as one of
        them may have the group choose an eager one, it must do as eager members do.
        """
        return all(assignor.cooperative for assignor in self._assignors.values())

    def subscriptions(
        self, topics: Collection[str], owned: Collection[TopicPartition], generation: int
    ) -> dict[str, bytes]:
        """What to tell the group, for each assignor."""
        return {
            name: ConsumerProtocolSubscription(
                topics=sorted(topics),
                user_data=assignor.user_data(topics, owned, generation),
                owned_partitions=sorted(owned),
                generation_id=generation,
                rack_id=self._rack,
            ).encode()
            for name, assignor in self._assignors.items()
        }

    def divide(
        self,
        protocol: str,
        subscriptions: Mapping[str, MemberSubscription],
        partitions: Mapping[str, int],
        racks: Racks,
    ) -> dict[str, list[TopicPartition]]:
        """We lead: who reads what."""
        return self._assignor(protocol).assign(partitions, subscriptions, racks)

    def assigned(self, protocol: str, given: bytes, generation: int) -> list[TopicPartition]:
        """What we were given, out of the leader's bytes; none are nothing."""
        told = ConsumerProtocolAssignment.decode(given).assigned_partitions if given else ()
        partitions = list(told)
        self._assignor(protocol).assigned(partitions, generation)
        return partitions

    def _assignor(self, protocol: str) -> Assignor:
        try:
            return self._assignors[protocol]
        except KeyError:
            ours = ", ".join(self._assignors)
            raise InconsistentGroupProtocol(
                f"the group chose the assignor {protocol!r}, and we have {ours}"
            ) from None


def readable(members: Iterable[Mapping[str, Any]]) -> dict[str, MemberSubscription]:
    """The subscriptions of the members; one that makes no sense is left out, and reported."""
    found = {}
    for row in members:
        who, instance = row["member_id"], row.get("group_instance_id")
        try:
            found[who] = MemberSubscription.of(row["metadata"] or b"", instance)
        except MalformedConsumerProtocol as error:
            _log.error("member %s of the group gets nothing: %s", instance or who, error)
    return found


def shares(
    members: Iterable[Mapping[str, Any]], division: Mapping[str, Collection[TopicPartition]]
) -> dict[str, bytes]:
    """A division as SyncGroup has it: every member is told, if only that it gets nothing."""
    return {
        row["member_id"]: ConsumerProtocolAssignment(
            sorted(division.get(row["member_id"], ()))
        ).encode()
        for row in members
    }
