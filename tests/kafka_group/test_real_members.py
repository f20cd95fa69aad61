"""Members of a group that a real Kafka coordinates, by the classic protocol."""

from collections.abc import Callable

import pytest

from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.testing.handles import KafkaHandle
from tests.helpers import until
from tests.kafka_group.real import member, until_divided

ASSIGNORS = [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
async def test_two_members_split_a_topic(
    kafka: KafkaHandle, assignor: Callable[[], Assignor]
) -> None:
    topic, group = await kafka.topic(partitions=4), kafka.group()
    async with member(kafka.bootstrap_servers, group, topic, [assignor()]) as one:
        await until(lambda: one.numbers == {0, 1, 2, 3})
        async with member(kafka.bootstrap_servers, group, topic, [assignor()]) as two:
            await until_divided([one, two], {topic: 4})
            assert len(one.owned) == len(two.owned) == 2
            await two.leave()
            await until(lambda: one.numbers == {0, 1, 2, 3})
            assert not any(assignment.lost for assignment in one.history)
        given_up = [assignment for assignment in one.history if not assignment.partitions]
        assert bool(given_up) is not assignor().cooperative
        await one.leave()
