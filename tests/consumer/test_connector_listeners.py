"""Rebalance listeners of a connector that fail or are slow."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from asyncconsumer.consumer.connector_listener import RebalanceListener
from asyncconsumer.errors import ListenerFailed
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.consumer.test_connector import fakes, joined

pytestmark = pytest.mark.fast


class Failing(RebalanceListener):
    """A listener that fails in the callback named by `where`."""

    def __init__(self) -> None:
        self.where = ""

    async def before_starting_fetchers(
        self, consumer_id: str, owners: Mapping[TopicPartition, str]
    ) -> None:
        self._fail_in("before_starting")

    async def partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._fail_in("lost")

    def _fail_in(self, callback: str) -> None:
        if callback == self.where:
            raise ValueError("a mistake of the user's")


def types_of_causes(error: BaseException) -> list[type[BaseException]]:
    """Return the types of an error and of its causes."""
    return [type(error), *(types_of_causes(error.__cause__) if error.__cause__ is not None else ())]


@pytest.mark.parametrize("where", ["before_starting", "lost"])
@simulated(range(3))
async def test_a_later_listener_error_is_raised_where_streams_are_read(where: str) -> None:
    listener = Failing()
    async with fakes(2) as world, world.connector("m2", listener) as connector:
        stream = await joined(connector)

        async def read() -> None:
            with pytest.raises(
                ListenerFailed, match=rf"{where}: ValueError\(.a mistake"
            ) as excinfo:
                async for _record in stream:
                    pass
            assert types_of_causes(excinfo.value)[-1] is ValueError

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(read())
            world.cluster.append("t", 0, 3)
            await asyncio.sleep(5)
            listener.where = where
            if where == "lost":
                world.zookeeper.expire(world.zookeeper.sessions[0])
            else:
                world.cluster.add_partitions("t", 3)


class Slow(RebalanceListener):
    """A listener that takes a while to revoke."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.log: list[str] = []

    async def before_releasing_partitions(self, partitions: Collection[TopicPartition]) -> None:
        self.began.set()
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            self.log.append("broken off")
            raise
        self.log.append(f"released {len(partitions)}")


@simulated(range(3))
async def test_a_shutdown_waits_for_a_running_listener() -> None:
    listener = Slow()
    async with fakes(2) as world, world.connector("m2", listener) as connector:
        await joined(connector)
        world.register("m1")
        await listener.began.wait()
        await connector.shutdown()
        assert listener.log == ["released 1", "released 1"]
