"""Removes a member that died from its group, over connections of its own."""

from typing import Final

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.consumer.environment import Environment
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.classic.removal import remove_member
from asyncconsumer.net.coordinator import Coordinator

_PATIENCE_MS: Final = 30_000


async def remove_from(
    group_id: str, member_id: str, connection: ConnectionConfig, environment: Environment
) -> None:
    """Have a group go on without a member. What is in the way is tried again for a while."""
    async with KafkaClient(
        connection,
        patience_ms=_PATIENCE_MS,
        randomness=environment.randomness,
        opener=environment.open_broker,
    ) as kafka:
        coordinator = Coordinator(group_id, kafka.brokers, kafka.cluster)
        await remove_member(
            coordinator, member_id, RetryDeadline(_PATIENCE_MS, environment.randomness)
        )
