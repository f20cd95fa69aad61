"""An app in a ZooKeeper group that finds brokers only through ZooKeeper."""

import pytest

from asyncconsumer import ConsumerApp, Record
from asyncconsumer.testing.virtual_time import simulated
from tests.consumer.test_zookeeper_bootstrap import world
from tests.handlers.test_dead_letters import written
from tests.support.helpers import until

pytestmark = pytest.mark.fast


@simulated(seeds=range(2))
async def test_dead_letters_are_written_to_the_brokers_of_zookeeper() -> None:
    async with world() as (cluster, zookeeper, controller, environment):
        await controller.register()
        for topic in ("t", "dead"):
            await controller.add_topic(topic, 1)
        cluster.append("t", 0, 3)
        app = environment.run(
            ConsumerApp,
            group_protocol="zookeeper",
            zookeeper_connect=zookeeper.connect,
            group_id="g",
            auto_offset_reset="earliest",
        )

        @app.handler("t", dead_letter_topic="dead")
        async def handle(record: Record) -> None:
            if record.offset == 1:
                raise ValueError("no")

        async with app:
            await until(lambda: len(written(cluster)) == 1)
