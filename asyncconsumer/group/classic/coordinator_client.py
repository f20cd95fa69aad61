"""What a member asks of its coordinator, apart from heartbeats, and the id that it is given."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.protocol.api import Request

from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import BrokerError, ConsumerError
from asyncconsumer.group.classic.attempt import JoinAttempt
from asyncconsumer.group.classic.reactions import GroupRequest, Reaction, reaction
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import LeaveGroupRequest
from asyncconsumer.types import Address


class CoordinatorResponse(NamedTuple):
    """What it said, when it was asked, and where it is."""

    values: Mapping[str, Any]
    sent_at: float
    address: Address


class CoordinatorClient:
    """Asks one coordinator, wherever it is. A no is raised as its BrokerError."""

    def __init__(
        self, coordinator: Coordinator, attempt: JoinAttempt, suspensions: Suspensions
    ) -> None:
        self._member_id = ""
        self._lasting = False  # our id is in a finished generation, which is written down
        self._doubted = False  # a fence, since the last such generation
        self._coordinator = coordinator
        self._attempt = attempt
        self._suspensions = suspensions

    @property
    def member_id(self) -> str:
        """As the coordinator calls us; nothing while it does not know us."""
        return self._member_id

    def be(self, member_id: str) -> None:
        """Be called so from now on."""
        self._lasting = self._lasting and member_id == self._member_id
        self._member_id = member_id

    def reset_member_id(self) -> None:
        """Be new, the next time that we join."""
        self.be("")

    def last(self) -> None:
        """The generation is finished: whoever coordinates later knows us by our id."""
        self._lasting, self._doubted = True, False

    def resolve_fencing(self, what: Reaction) -> Reaction:
        """What to do about an answer that calls for that: a fence may be a mistake.

        A coordinator may die with the id that it gave us, and the next one knows but who we were:
        then we come back by name. Once only: two processes of one name would fence each other for
        ever.
        """
        fenced = what is Reaction.FENCED
        if not fenced or not self._member_id or self._lasting or self._doubted:
            return what
        self._doubted = True
        return Reaction.REJOIN_AS_NEW

    async def join(self, request: Request, *, timeout: float) -> CoordinatorResponse:
        """JoinGroup. With the answer, or with a refusal that says so, we have an id."""
        return await self._ask(GroupRequest.JOIN, request, timeout)

    async def sync(
        self, request: Request, coordinator: Address, *, timeout: float
    ) -> CoordinatorResponse:
        """SyncGroup, again if no answer came: it does no harm, unless the coordinator moved."""
        while True:
            try:
                return await self._ask(GroupRequest.SYNC, request, timeout)
            except ConsumerError as error:
                if reaction(GroupRequest.SYNC, error) is not Reaction.RETRY:
                    raise
                await self._attempt.pause()
                if await self._coordinator.find() != coordinator:
                    raise

    async def elsewhere(self) -> bool:
        """Whether the coordinator is not, or no longer, where it was found."""
        return self._coordinator.address is not None and await self._coordinator.moved()

    async def leave(self, reason: str) -> None:
        """LeaveGroup, until the coordinator does not know us any more."""
        while self.member_id:
            request = LeaveGroupRequest(self._coordinator.group_id, self.member_id, reason=reason)
            try:
                async with self._coordinator.reached(Traffic.GROUP) as connection:
                    values = (await connection.request(request)).to_object()
                    for row in (values, *values.get("members", ())):
                        self._check(GroupRequest.LEAVE, row)
                self.reset_member_id()
            except ConsumerError as error:
                match reaction(GroupRequest.LEAVE, error):
                    case Reaction.DONE:
                        self.reset_member_id()
                    case Reaction.RETRY | Reaction.FIND_COORDINATOR:
                        await self._attempt.pause()
                    case _:
                        raise

    async def _ask(
        self, ask: GroupRequest, request: Request, timeout: float
    ) -> CoordinatorResponse:
        """Over a connection of its own: the coordinator may think about it for minutes."""
        async with self._coordinator.reached(Traffic.JOIN) as connection:
            self._suspensions.look()
            sent_at = asyncio.get_running_loop().time()
            try:
                values = (await connection.request(request, timeout=timeout)).to_object()
            except asyncio.CancelledError:
                connection.close()  # what is asked next would wait behind what nobody waits for
                raise
            self._check(ask, values)
            return CoordinatorResponse(values, sent_at, connection.address)

    def _check(self, ask: GroupRequest, values: Mapping[str, Any]) -> None:
        if code := values["error_code"]:
            who = self.member_id or "a new member"
            error = BrokerError.of(code, f"{ask.value} of {who} in {self._coordinator.group_id!r}")
            if reaction(ask, error) is Reaction.REJOIN_WITH_ID:
                self.be(values["member_id"])
            raise error
