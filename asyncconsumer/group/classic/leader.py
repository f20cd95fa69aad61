"""The work of a classic group's leader: reading subscriptions and computing the assignment."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from asyncconsumer.aio.threads import call_in_daemon_thread
from asyncconsumer.errors import ConfigError, InconsistentGroupProtocol, MalformedConsumerProtocol
from asyncconsumer.group.assignors import Assignor, MemberSubscription, Racks
from asyncconsumer.protocol.subscription_codec import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from asyncconsumer.types import Address, MemberIdentity, TopicPartition

_log: Final = logging.getLogger(__name__)
_MAX_BYTES_AT_ONCE: Final = 64 * 1024  # subscriptions with more bytes are decoded in a thread


class JoinResult(NamedTuple):
    """The result of a JoinGroup request, for the member that sent it."""

    identity: MemberIdentity
    protocol: str
    leader: str  # the leader's member id
    decides: bool  # False for a static leader that rejoined (`skip_assignment`)
    members: Sequence[Mapping[str, Any]]
    address: Address  # the coordinator's address
    as_new: bool = False  # the request had no member id

    @classmethod
    def of(
        cls,
        answer: Mapping[str, Any],
        instance_id: str | None,
        address: Address,
        *,
        as_new: bool = False,
    ) -> "JoinResult":
        """Return the result in `answer`, a decoded response of any version."""
        leads = answer["leader"] == answer["member_id"]
        return cls(
            MemberIdentity(answer["member_id"], answer["generation"], instance_id),
            answer["protocol"] or "",
            answer["leader"],
            leads and not answer.get("skip_assignment", False),
            answer["members"] or (),
            address,
            as_new,
        )

    @property
    def leads(self) -> bool:
        """Whether this member is the group leader."""
        return self.leader == self.identity.member_id

    @property
    def may_be_returned_leader(self) -> bool:
        """Whether this may be a static leader that restarted and got its last assignment again.

        Before version 9 of JoinGroup the response names the previous member id of such a leader.
        Brokers derive member ids from the instance id, so another member may have the same prefix.
        """
        instance_id = self.identity.instance_id
        if self.decides or instance_id is None:
            return False
        return self.leads or self.leader.startswith(f"{instance_id}-")


class GroupLeader:
    """The assignors that one member offers, in order of preference.

    If the member leads its group, it calls the assignor that the coordinator chose.
    """

    def __init__(self, assignors: Sequence[Assignor], rack: str) -> None:
        if not assignors:
            raise ConfigError(
                "`partition_assignment_strategy` is empty; pass an assignor, as [RangeAssignor()]"
            )
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._rack = rack or None

    @property
    def cooperative(self) -> bool:
        """Whether this member keeps its partitions while it rejoins.

        This is true if all of its assignors are cooperative. While a group migrates to a
        cooperative assignor, it may still choose an eager one. So a member that offers an eager one
        must revoke everything.
        """
        return all(assignor.cooperative for assignor in self._assignors.values())

    def subscriptions(
        self, topics: Collection[str], owned: Collection[TopicPartition], generation: int
    ) -> dict[str, bytes]:
        """Return this member's encoded subscription for each assignor, to send in JoinGroup."""
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

    def assign(
        self,
        protocol: str,
        subscriptions: Mapping[str, MemberSubscription],
        partitions: Mapping[str, int],
        racks: Racks,
    ) -> dict[str, list[TopicPartition]]:
        """Return the assignment of the whole group.

        `protocol` is the name of the chosen assignor.
        """
        return self._assignor(protocol).assign(partitions, subscriptions, racks)

    def assigned(self, protocol: str, encoded: bytes, generation: int) -> list[TopicPartition]:
        """Return the partitions of this member's assignment, decoded from `encoded`.

        Also pass them to the assignor with the name `protocol`. Empty bytes mean that no partition
        is assigned.
        """
        partitions = (
            list(ConsumerProtocolAssignment.decode(encoded).assigned_partitions) if encoded else []
        )
        self._assignor(protocol).assigned(partitions, generation)
        return partitions

    def _assignor(self, protocol: str) -> Assignor:
        try:
            return self._assignors[protocol]
        except KeyError:
            offered = ", ".join(self._assignors)
            raise InconsistentGroupProtocol(
                f"the group chose the assignor {protocol!r}, but this member offers {offered}"
            ) from None


def decode_subscriptions(members: Iterable[Mapping[str, Any]]) -> dict[str, MemberSubscription]:
    """Return the subscription of each member by its id, from the rows of a JoinGroup response.

    A malformed subscription is left out and logged.
    """
    subscriptions = {}
    for row in members:
        member_id, instance = row["member_id"], row.get("group_instance_id")
        try:
            subscriptions[member_id] = MemberSubscription.of(row["metadata"] or b"", instance)
        except MalformedConsumerProtocol as error:
            _log.error("member %s gets no partition: %s", instance or member_id, error)
    return subscriptions


async def decode_in_thread_if_large(
    members: Sequence[Mapping[str, Any]],
) -> dict[str, MemberSubscription]:
    """Return the subscription of each member by its id, as `decode_subscriptions` does.

    Other members may send large subscriptions. A thread decodes these, because 1 MB takes 0.1 s.
    """
    decode = partial(decode_subscriptions, members)
    if sum(len(row["metadata"] or b"") for row in members) <= _MAX_BYTES_AT_ONCE:
        return decode()
    return await call_in_daemon_thread("asyncconsumer subscriptions", decode)


def encode_assignments(
    members: Iterable[Mapping[str, Any]], assignments: Mapping[str, Collection[TopicPartition]]
) -> dict[str, bytes]:
    """Return the encoded assignment of each member by its id, for SyncGroup.

    A member without partitions gets an empty assignment.
    """
    return {
        row["member_id"]: ConsumerProtocolAssignment(
            sorted(assignments.get(row["member_id"], ()))
        ).encode()
        for row in members
    }
