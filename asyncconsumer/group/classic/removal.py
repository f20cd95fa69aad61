"""The removal of a dead member from its group before its session timeout."""

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.errors import (
    BrokerError,
    ConsumerError,
    GroupIdNotFound,
    UnknownMemberId,
    UnsupportedBroker,
)
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import Traffic
from asyncconsumer.protocol.classic_group import LeaveGroupRequest
from asyncconsumer.protocol.consumer_group import LEAVE_EPOCH, ConsumerGroupHeartbeatRequest

_NOT_THERE = (UnknownMemberId, GroupIdNotFound)


async def remove_member(coordinator: Coordinator, member_id: str, patience: RetryDeadline) -> None:
    """Remove a dead member from its group. Do nothing if the member or the group is unknown.

    Call this only when the member's process is known to be dead, because a live member would be
    fenced. `patience` limits the time for retries.
    """
    while True:
        try:
            async with coordinator.reached(Traffic.GROUP) as connection:
                await _leave(connection, coordinator.group_id, member_id)
        except ConsumerError as error:
            await patience.wait_or_raise(error)
        else:
            return


async def _leave(connection: BrokerConnection, group_id: str, member_id: str) -> None:
    """Remove a member with LeaveGroup.

    If that fails because the member is unknown, send the heartbeat with which KIP-848 members
    leave.
    """
    try:
        await _leave_classic(connection, group_id, member_id)
    except _NOT_THERE:
        farewell = ConsumerGroupHeartbeatRequest(group_id, member_id, LEAVE_EPOCH)
        try:
            answer = (await connection.request(farewell)).to_object()
            _check(answer["error_code"], group_id, member_id)
        except (*_NOT_THERE, UnsupportedBroker):
            return


async def _leave_classic(connection: BrokerConnection, group_id: str, member_id: str) -> None:
    request = LeaveGroupRequest(group_id, member_id, reason="its process is gone")
    answer = (await connection.request(request)).to_object()
    for row in (answer, *answer.get("members", ())):
        _check(row["error_code"], group_id, member_id)


def _check(code: int, group_id: str, member_id: str) -> None:
    if code:
        raise BrokerError.from_code(code, f"the removal of {member_id} from group {group_id!r}")
