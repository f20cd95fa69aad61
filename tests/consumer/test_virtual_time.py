"""A consumer with the default options on virtual time."""

import asyncio
import threading
from random import Random

import pytest

from asyncconsumer import Consumer
from asyncconsumer.config.choices import GroupProtocol
from asyncconsumer.environment import Environment
from asyncconsumer.testing.virtual_time import run
from tests.support.fake_consumer import coordinating

pytestmark = [pytest.mark.fast, pytest.mark.timeout(60)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("gives_clock", [True, False])
def test_a_consumer_with_default_options_reads(
    protocol: GroupProtocol, *, gives_clock: bool
) -> None:
    async def read() -> None:
        clock = asyncio.get_running_loop().time if gives_clock else None
        async with coordinating(protocol) as cluster:
            cluster.add_topic("t")
            cluster.append("t", 0, 3)
            environment = Environment(open_broker=cluster.open, clock=clock, randomness=Random(2))
            async with environment.run(
                Consumer,
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
            ) as consumer:
                seen = []
                async for record in consumer:
                    seen.append(record.offset)
                    await asyncio.sleep(50)  # longer than a session
                    if len(seen) == 3:
                        break
        assert seen == [0, 1, 2]
        names = {thread.name for thread in threading.enumerate()}
        assert "asyncconsumer watchdog" not in names

    run(read, limit=3600)


async def test_a_real_loop_has_no_virtual_clock() -> None:
    assert Environment().virtual_clock() is None
