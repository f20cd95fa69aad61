"""The messages of KIP-848, exchanged with a real coordinator."""

import asyncio
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from asyncconsumer.config import ConnectionConfig
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.net.pool import BrokerPool, Traffic
from asyncconsumer.protocol.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
)
from asyncconsumer.testing.handles import KafkaHandle
from asyncconsumer.types import Address
from tests.support.helpers import until


@pytest.mark.parametrize("by_regex", [False, True], ids=["by name", "by pattern"])
async def test_a_member_joins_gets_an_assignment_and_leaves(
    kafka: KafkaHandle, *, by_regex: bool
) -> None:
    topic, group, me = await kafka.topic(partitions=3), kafka.group(), str(uuid4())
    requested: dict[str, Any] = {"topic_regex": topic} if by_regex else {"topics": [topic]}
    config = ConnectionConfig(bootstrap_servers=kafka.bootstrap_servers)
    async with (
        BrokerPool(config, randomness=Random(1)) as brokers,
        Cluster(brokers, randomness=Random(1)) as cluster,
    ):
        topic_id = (await cluster.refresh([topic])).topics[topic].topic_id
        assert topic_id is not None

        async def coordinator() -> Address:
            while True:
                result = (await cluster.ask_any(FindCoordinatorRequest(group, 0))).to_object()
                if not result["error_code"]:
                    return Address(result["host"], result["port"])
                await asyncio.sleep(0.05)

        async def heartbeat(epoch: int, **changes: Any) -> dict[str, Any]:
            message = ConsumerGroupHeartbeatRequest(group, me, epoch, **changes)
            answer = await brokers.request(await coordinator(), Traffic.GROUP, message)
            values: dict[str, Any] = answer.to_object()
            return values

        epoch = JOIN_EPOCH
        assignment: tuple[Any, ...] = ()

        async def assigned() -> bool:
            nonlocal epoch, assignment
            joining = {"rebalance_timeout_ms": 5000, "owned": {}, **requested}
            answer = await heartbeat(epoch, **(joining if epoch == JOIN_EPOCH else {}))
            epoch = JOIN_EPOCH if answer["error_code"] else answer["member_epoch"]
            assignment = tuple(answer["assignment"][0]) if answer["assignment"] else ()
            return bool(assignment)

        await until(assigned)
        ((assigned_topic, partitions, _),) = assignment
        assert assigned_topic == topic_id
        assert sorted(partitions) == [0, 1, 2]
        assert (await heartbeat(LEAVE_EPOCH))["error_code"] == 0
