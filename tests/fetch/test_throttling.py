"""Brokers that throttle or reject fetch sessions, and the pause before the next request."""

import asyncio
from random import Random

import pytest

from asyncconsumer.errors import FetchSessionNotFound
from asyncconsumer.fetch.cursor import FetchTarget
from asyncconsumer.streams.stream import Stream
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster
from asyncconsumer.testing.fake_kafka.broker import Handler, Request
from asyncconsumer.testing.fake_kafka.fetch_codec import encode
from asyncconsumer.testing.virtual_time import simulated
from asyncconsumer.types import TopicPartition
from tests.support.worlds.fetch import engine_on

pytestmark = pytest.mark.fast

AT = TopicPartition("t", 0)
FETCH = 1


class Fetches:
    """While `refusing`, fetches are answered with a throttle time, or an error."""

    def __init__(self, *, throttle_ms: int = 0, code: int = 0) -> None:
        self.times: list[float] = []
        self.refusing = True
        self._throttle_ms = throttle_ms
        self._code = code

    @property
    def handler(self) -> Handler:
        return HANDLERS[FETCH]._replace(answer=self._answer)

    def _answer(self, request: Request) -> None:
        self.times.append(asyncio.get_running_loop().time())
        if self.refusing:
            outcome = self._code, 0
            request.answer(encode(request.received.version, self._throttle_ms, outcome, {}, []))
        else:
            HANDLERS[FETCH].answer(request)


def cluster_of(fetches: Fetches) -> FakeCluster:
    return FakeCluster(Random(1), brokers=1, handlers={**HANDLERS, FETCH: fetches.handler})


@simulated(range(3))
async def test_a_throttle_time_is_limited_and_the_reason_of_a_stall() -> None:
    fetches = Fetches(throttle_ms=2**31 - 1)
    async with cluster_of(fetches) as cluster, engine_on(cluster, stall_timeout_ms=5000) as engine:
        cluster.add_topic("t", 1)
        channel = engine.channel()
        engine.reconcile({AT: FetchTarget(channel, 0)})
        while not fetches.times:
            await asyncio.sleep(0.01)
        fetches.refusing = False
        cluster.append("t", 0, 3)
        await asyncio.sleep(20)
        assert "throttles this client for 30 s" in engine.stalled()[AT].reason
        async with asyncio.timeout(15):
            assert (await anext(aiter(Stream(channel)))).offset == 0
        assert fetches.times[1] - fetches.times[0] == pytest.approx(30, abs=1)


@simulated(range(3))
async def test_refused_fetch_sessions_are_requested_with_a_backoff() -> None:
    fetches = Fetches(code=FetchSessionNotFound.code)
    async with cluster_of(fetches) as cluster, engine_on(cluster, stall_timeout_ms=5000) as engine:
        cluster.add_topic("t", 1)
        cluster.append("t", 0, 3)
        channel = engine.channel()
        engine.reconcile({AT: FetchTarget(channel, 0)})
        await asyncio.sleep(20)
        assert 10 < len(fetches.times) < 40
        assert fetches.times[1] - fetches.times[0] < 0.05  # the first refusal is not delayed
        assert "refuses fetch sessions" in engine.stalled()[AT].reason
        fetches.refusing = False
        async with asyncio.timeout(2):
            assert (await anext(aiter(Stream(channel)))).offset == 0
