"""Large subscriptions of other members, which must not block the leader's event loop."""

import asyncio
from typing import Any

import pytest

from asyncconsumer.group.classic.leader import decode_in_thread_if_large, decode_subscriptions
from asyncconsumer.protocol.subscription_codec import ConsumerProtocolSubscription

pytestmark = pytest.mark.fast


def member(topics: int) -> dict[str, Any]:
    names = [f"a-topic-with-a-long-name-{number}" for number in range(topics)]
    metadata = ConsumerProtocolSubscription(topics=names).encode()
    return {"member_id": "other", "group_instance_id": None, "metadata": metadata}


@pytest.mark.parametrize(("topics", "in_thread"), [(5, False), (30_000, True)])
async def test_the_event_loop_runs_while_large_subscriptions_are_decoded(
    topics: int, in_thread: bool
) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    members = [member(topics)]
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_turns())
        await asyncio.sleep(0)
        decoded = await decode_in_thread_if_large(members)
        counting.cancel()
    assert decoded == decode_subscriptions(members)
    assert len(decoded["other"].topics) == topics
    assert (turns > 1) is in_thread
