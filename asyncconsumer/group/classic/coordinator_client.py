"""JoinGroup, SyncGroup, LeaveGroup and DescribeGroups requests, and the id of the member."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.aiokafka_parts import Request
from asyncconsumer.errors import BrokerError, ConsumerError, MalformedResponse
from asyncconsumer.group.classic.attempt import JoinAttempt
from asyncconsumer.group.classic.description import GroupDescription
from asyncconsumer.group.classic.reactions import GroupRequest, Reaction, reaction_to
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import DescribeGroupsRequest, LeaveGroupRequest
from asyncconsumer.types import Address


class CoordinatorResponse(NamedTuple):
    """A response of the group coordinator.

    `sent_at` is the loop time at which the request was sent. `address` is that of the coordinator.
    """

    values: Mapping[str, Any]
    sent_at: float
    address: Address


class CoordinatorClient:
    """A client for the requests of one member to the coordinator of its group.

    An error in a response is raised as a `BrokerError`.
    """

    def __init__(
        self, coordinator: Coordinator, attempt: JoinAttempt, suspensions: Suspensions
    ) -> None:
        self._member_id = ""
        self._confirmed = False  # the coordinator has persisted the member id
        self._fencing_ignored = False  # a fencing was ignored since the last `confirm_member_id`
        self._coordinator = coordinator
        self._attempt = attempt
        self._suspensions = suspensions

    @property
    def member_id(self) -> str:
        """The member id that the coordinator assigned, or "" before that."""
        return self._member_id

    def set_member_id(self, member_id: str) -> None:
        """Set the member id that later requests contain."""
        self._confirmed = self._confirmed and member_id == self._member_id
        self._member_id = member_id

    def reset_member_id(self) -> None:
        """Clear the member id, so that this member joins next as a new member."""
        self.set_member_id("")

    def confirm_member_id(self) -> None:
        """Record that SyncGroup succeeded.

        The coordinator has then persisted the member id, so every later coordinator knows it.
        """
        self._confirmed, self._fencing_ignored = True, False

    def resolve_fencing(self, reaction: Reaction) -> Reaction:
        """Return REJOIN_AS_NEW for a first FENCED reaction, and otherwise `reaction` itself.

        The fencing may be a mistake. A coordinator may fail before it persists a new member id. Its
        successor then knows only the previous member id of the instance id, and fences this member.
        A rejoin by instance id resolves this. It is tried once, because two processes with one
        instance id would otherwise fence each other forever.
        """
        fenced = reaction is Reaction.FENCED
        if not fenced or not self._member_id or self._confirmed or self._fencing_ignored:
            return reaction
        self._fencing_ignored = True
        return Reaction.REJOIN_AS_NEW

    async def join(self, request: Request, *, timeout: float) -> CoordinatorResponse:
        """Send JoinGroup and return the response.

        A MEMBER_ID_REQUIRED error sets the member id before it is raised.
        """
        return await self._send(GroupRequest.JOIN, request, timeout)

    async def sync(
        self, request: Request, coordinator: Address, *, timeout: float
    ) -> CoordinatorResponse:
        """Send SyncGroup. Retry it while `coordinator` is still the coordinator.

        Raise the last error if another broker has become the coordinator. A retry is safe, because
        SyncGroup is idempotent.
        """
        while True:
            try:
                return await self._send(GroupRequest.SYNC, request, timeout)
            except ConsumerError as error:
                if reaction_to(GroupRequest.SYNC, error) is not Reaction.RETRY:
                    raise
                await self._attempt.pause()
                if await self._coordinator.find() != coordinator:
                    raise

    async def has_moved(self) -> bool:
        """Look up the coordinator again. Return whether the group now has another coordinator."""
        return self._coordinator.address is not None and await self._coordinator.moved()

    async def leave(self, reason: str) -> None:
        """Send LeaveGroup until the coordinator has removed this member.

        Do nothing without a member id.
        """
        while self.member_id:
            request = LeaveGroupRequest(self._coordinator.group_id, self.member_id, reason=reason)
            try:
                async with self._coordinator.reached(Traffic.GROUP) as connection:
                    values = (await connection.request(request)).to_object()
                    for row in (values, *values.get("members", ())):
                        self._check(GroupRequest.LEAVE, row)
                self.reset_member_id()
            except ConsumerError as error:
                match reaction_to(GroupRequest.LEAVE, error):
                    case Reaction.DONE:
                        self.reset_member_id()
                    case Reaction.RETRY | Reaction.FIND_COORDINATOR:
                        await self._attempt.pause()
                    case _:
                        raise

    async def describe(self) -> GroupDescription:
        """Send DescribeGroups and return the members of the group with their assignments."""
        group_id = self._coordinator.group_id
        async with self._coordinator.reached(Traffic.GROUP) as connection:
            answer = await connection.request(DescribeGroupsRequest(group_id))
            for row in answer.to_object()["groups"]:
                if code := row["error_code"]:
                    raise BrokerError.from_code(code, f"DescribeGroups of group {group_id!r}")
                return GroupDescription.of(row)
            raise MalformedResponse("DescribeGroups", answer.API_VERSION, 0, "no group")

    async def _send(
        self, kind: GroupRequest, request: Request, timeout: float
    ) -> CoordinatorResponse:
        """Send a request on a separate connection, because the response may take minutes."""
        async with self._coordinator.reached(Traffic.JOIN) as connection:
            self._suspensions.check()
            sent_at = asyncio.get_running_loop().time()
            try:
                values = (await connection.request(request, timeout=timeout)).to_object()
            except asyncio.CancelledError:
                connection.close()  # later requests would wait for the abandoned response
                raise
            self._check(kind, values)
            return CoordinatorResponse(values, sent_at, connection.address)

    def _check(self, kind: GroupRequest, values: Mapping[str, Any]) -> None:
        if code := values["error_code"]:
            member = self.member_id or "a new member"
            group = self._coordinator.group_id
            error = BrokerError.from_code(code, f"{kind.value} of {member} in group {group!r}")
            if reaction_to(kind, error) is Reaction.REJOIN_WITH_ID:
                self.set_member_id(values["member_id"])
            raise error
