"""The removal of a dead member from its group, over separate connections."""

from typing import Final

from asyncconsumer.aio.retry_deadline import RetryDeadline
from asyncconsumer.config import ConnectionConfig
from asyncconsumer.environment import Environment
from asyncconsumer.fetch.client import KafkaClient
from asyncconsumer.group.classic.removal import remove_member
from asyncconsumer.net.coordinator import Coordinator

_PATIENCE_MS: Final = 30_000


async def remove_from(
    group_id: str, member_id: str, connection: ConnectionConfig, environment: Environment
) -> None:
    """Remove a member from a group over a separate connection. Retry for up to 30 seconds."""
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
