"""The messages of classic groups, in each supported version, with a real coordinator."""

from random import Random
from typing import Any

import pytest
from aiokafka.protocol.api import Request

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.connection import BrokerConnection
from asyncconsumer.net.coordinator import Coordinator
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.classic_group import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from asyncconsumer.testing.handles import KafkaHandle
from tests.support.helpers import until

APIS = (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, DESCRIBE_GROUPS)
MEMBER_ID_REQUIRED = 79


def set_versions(connection: BrokerConnection, back: int) -> None:
    """Have a connection use API versions that are `back` older than the newest, if supported."""
    for api in APIS:
        low, high = connection.versions[api.key]
        version = max(low, api.versions[0], min(high, api.versions[-1]) - back)
        connection.versions[api.key] = version, version


@pytest.mark.parametrize("back", range(8))
async def test_a_member_joins_syncs_heartbeats_and_leaves(kafka: KafkaHandle, back: int) -> None:
    group = kafka.group()
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with (
        BrokerPool(config, randomness=Random(1)) as brokers,
        Cluster(brokers, randomness=Random(1)) as cluster,
    ):
        coordinator = Coordinator(group, brokers, cluster)
        answer: dict[str, Any] = {"error_code": 0, "member_id": ""}

        async def ask(request: Request) -> dict[str, Any]:
            async with coordinator.reached(Traffic.JOIN) as connection:
                set_versions(connection, back)
                values: dict[str, Any] = (await connection.request(request)).to_object()
                return values

        async def joined() -> bool:
            nonlocal answer
            known = answer["member_id"] if answer["error_code"] == MEMBER_ID_REQUIRED else ""
            request = JoinGroupRequest(
                group,
                {"odd": b"subscription"},
                protocol_type="odd",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=20_000,
                member_id=known,
                reason="r" * 300,
            )
            try:
                answer = await ask(request)
            except BrokerError:
                return False  # no coordinator yet
            return bool(answer["error_code"] == 0)

        await until(joined)
        member_id, generation = answer["member_id"], answer["generation"]
        assert answer["leader"] == member_id
        assert answer["protocol"] == "odd"
        (row,) = answer["members"]
        assert (row["member_id"], row["metadata"]) == (member_id, b"subscription")
        sync = SyncGroupRequest(
            group,
            generation,
            member_id,
            protocol_type="odd",
            protocol="odd",
            assignments={member_id: b"assignment"},
        )
        answer = await ask(sync)
        assert (answer["error_code"], answer["assignment"]) == (0, b"assignment")
        assert (await ask(HeartbeatRequest(group, generation, member_id)))["error_code"] == 0
        (described,) = (await ask(DescribeGroupsRequest(group)))["groups"]
        assert (described["error_code"], described["group_id"]) == (0, group)
        assert (described["group_state"], described["protocol"]) == ("Stable", "odd")
        (row,) = described["members"]
        assert row["member_id"] == member_id
        assert (row["metadata"], row["assignment"]) == (b"subscription", b"assignment")
        answer = await ask(LeaveGroupRequest(group, member_id, reason="enough"))
        assert answer["error_code"] == 0
        assert [member["error_code"] for member in answer.get("members", ())] in ([], [0])
        assert (await ask(HeartbeatRequest(group, generation, member_id)))["error_code"] == 25


@pytest.mark.parametrize(
    "request_of_a_static_member",
    [
        JoinGroupRequest(
            "g",
            {},
            protocol_type="odd",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            group_instance_id="i",
        ),
        SyncGroupRequest(
            "g", 1, "m", protocol_type="odd", protocol="odd", assignments={}, group_instance_id="i"
        ),
        HeartbeatRequest("g", 1, "m", group_instance_id="i"),
        LeaveGroupRequest("g", "m", group_instance_id="i"),
    ],
    ids=lambda member: type(member).__name__,
)
def test_requests_of_static_members_need_versions_with_instance_ids(
    request_of_a_static_member: Request,
) -> None:
    """Check that no version without instance ids is used. It would create a dynamic member."""
    everything = {api.key: (0, api.versions[-1]) for api in APIS}
    assert request_of_a_static_member.prepare(everything).API_VERSION > 3
    old = {api.key: (0, 2) for api in APIS}
    with pytest.raises(Exception, match="is needed in version"):
        request_of_a_static_member.prepare(old)
