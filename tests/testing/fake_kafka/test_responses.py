"""Responses of fake brokers: records, waiting, sessions, epochs, offsets."""

import asyncio
import functools
from random import Random
from typing import Any

import pytest
from aiokafka.protocol.types import Int16, Int32

from asyncconsumer.errors import ConfigError, UnsupportedBroker
from asyncconsumer.protocol.messages import (
    EARLIEST,
    LATEST,
    EpochRow,
    FetchTopic,
    ListedOffset,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from asyncconsumer.protocol.schema import Api, Field, TableRequest
from asyncconsumer.testing.fake_kafka import HANDLERS, FakeCluster, RecordPayload, Request, handler
from asyncconsumer.testing.virtual_time import run, simulated
from asyncconsumer.types import Address, TopicPartition
from tests.support.fake_clients import T0, clients, now

pytestmark = pytest.mark.fast

T1 = TopicPartition("t", 1)


# --- records -------------------------------------------------------------------------------------


@simulated(seeds=[0])
async def test_the_payloads_of_records_identify_them() -> None:
    async with clients() as (cluster, client):
        assert cluster.append("t", 0, 5, batches=2, size=200) == range(5)
        assert cluster.append("t", 0, 2, gap=3) == range(8, 10)
        answer = await client.fetch((0, 0))
        assert answer.observed() == [
            RecordPayload("t", 0, offset, 1, 1) for offset in (0, 1, 2, 3, 4, 8, 9)
        ]
        assert answer.observed() == cluster.records(T0)
        assert len(answer.data[0]) > 5 * 200
        assert (await client.fetch((0, 3))).offsets() == [2, 3, 4, 8, 9]  # whole batches


def test_a_foreign_value_is_not_a_record_payload() -> None:
    with pytest.raises(ConfigError, match="hello"):
        RecordPayload.of(b"hello")


@simulated(seeds=[0])
async def test_unreplicated_records_cannot_be_read() -> None:
    async with clients() as (cluster, client):
        cluster.append("t", 0, 2)
        cluster.append("t", 0, 3, replicated=False)
        assert (await client.fetch((0, 0))).offsets() == [0, 1]
        assert (await client.fetch((0, 4))).codes == {0: 0}
        assert cluster.records(T0)[-1].offset == 1
        cluster.replicate(T0)
        assert (await client.fetch((0, 0))).offsets() == [0, 1, 2, 3, 4]


@simulated(seeds=[0])
async def test_aborted_transactions_are_listed_for_read_committed() -> None:
    async with clients() as (cluster, client):
        cluster.append("t", 0, 1)
        assert cluster.append_transaction("t", 0, 2, producer=7, commit=False) == range(1, 3)
        assert cluster.append_transaction("t", 0, 2, producer=7, commit=True) == range(4, 6)
        plain = await client.fetch((0, 0))
        assert plain.offsets() == [0, 1, 2, 4, 5]
        assert plain.parts[0].aborted is None
        committed = await client.fetch((0, 0), isolation_level=1)
        assert committed.parts[0].aborted == [(7, 1)]
        assert [payload.offset for payload in committed.observed(committed=True)] == [0, 4, 5]
        assert (await client.fetch((0, 4), isolation_level=1)).parts[0].aborted == []


@simulated(seeds=[0])
async def test_deleted_records_are_out_of_range() -> None:
    async with clients(count=3) as (cluster, client):
        cluster.append("t", 0, 3)
        assert cluster.advance_log_start(T0, 4) == 4
        assert (await client.fetch((0, 3))).codes == {0: 1}
        answer = await client.fetch((0, 4))
        assert answer.offsets() == [3, 4, 5]
        assert answer.parts[0].log_start_offset == 4
        assert cluster.advance_log_start(T0) == 6
        assert cluster.records(T0) == []


# --- waiting -------------------------------------------------------------------------------------


@simulated(seeds=range(5))
async def test_a_fetch_waits_for_records_up_to_max_wait_ms() -> None:
    async with clients(latency=(0.0, 0.0)) as (cluster, client):
        assert (await client.fetch((0, 0), max_wait_ms=700)).offsets() == []
        assert now() == 0.7
        asyncio.get_running_loop().call_later(2, cluster.append, "t", 0, 1)
        assert (await client.fetch((0, 0), max_wait_ms=60_000)).offsets() == [0]
        assert now() == 2.7


@simulated(seeds=range(5))
async def test_a_fetch_waits_for_min_bytes() -> None:
    async with clients(latency=(0.0, 0.0)) as (cluster, client):
        for second in (1, 2, 3):
            asyncio.get_running_loop().call_later(second, cluster.append, "t", 0, 1)
        answer = await client.fetch((0, 0), max_wait_ms=60_000, min_bytes=150)
        assert (answer.offsets(), now()) == ([0, 1], 2)


@simulated(seeds=range(5))
async def test_a_waiting_fetch_ends_when_the_leader_or_the_log_changes() -> None:
    async with clients(count=5, latency=(0.0, 0.0)) as (cluster, client):
        loop = asyncio.get_running_loop()
        loop.call_later(1, cluster.move_leader, T0, 2)
        assert (await client.fetch((0, 5, 1), max_wait_ms=60_000)).codes == {0: 74}
        cluster.move_leader(T0, 1)
        loop.call_later(1, cluster.truncate, T0, 1)
        assert (await client.fetch((0, 5), max_wait_ms=60_000)).codes == {0: 1}
        loop.call_later(1, cluster.delete_topic, "t")
        assert (await client.fetch((0, 0), max_wait_ms=60_000)).codes == {0: 3}
        assert now() == 3


@simulated(seeds=range(20))
async def test_responses_of_one_connection_are_in_the_order_of_requests() -> None:
    async with clients(latency=(0.001, 0.1)) as (_, client):
        connection = await client.connection()
        slow = connection.send_raw(client.fetching((0, 0), max_wait_ms=5000))
        quick = [connection.send_raw(client.fetching((0, 0))) for _ in range(5)]
        done: list[int] = []
        for number, answer in enumerate([slow, *quick]):
            answer.add_done_callback(functools.partial(note, done, number))
        for answer in quick:
            await answer
        assert done == [0, 1, 2, 3, 4, 5]
        assert now() > 5


@simulated(seeds=[0])
async def test_a_fetch_of_a_closed_connection_is_dropped() -> None:
    async with clients() as (cluster, client):
        connection = await client.connection()
        connection.send_raw(client.fetching((0, 0), max_wait_ms=10_000))
        await asyncio.sleep(1)
        assert len(cluster.view.partition(T0).watchers) == 1
        connection.close()
        assert not cluster.view.partition(T0).watchers
        assert cluster.brokers[1].connections == 0


def note(done: list[int], number: int, _: object) -> None:
    done.append(number)


# --- sessions ------------------------------------------------------------------------------------


@simulated(seeds=[0])
async def test_a_fetch_session_returns_only_changes() -> None:
    async with clients(partitions=3, count=2) as (cluster, client):
        full = await client.fetch((0, 2), (1, 2), (2, 2), session=(0, 0))
        assert full.session > 0
        assert full.order == [0, 1, 2]
        assert full.topics == 1
        assert (await client.fetch(session=(full.session, 1))).order == []
        cluster.append("t", 1, 1)
        answer = await client.fetch(session=(full.session, 2))
        assert (answer.order, answer.offsets(1)) == ([1], [2])
        moved = await client.fetch((1, 3), session=(full.session, 3))
        assert moved.order == []
        cluster.advance_log_start(T0, 1)
        assert (await client.fetch(session=(full.session, 4))).order == [0]
        assert (await client.fetch(session=(full.session, 5))).order == []


@simulated(seeds=[0])
async def test_partitions_of_a_fetch_session_alternate() -> None:
    async with clients(partitions=3, count=2) as (_, client):
        answer = await client.fetch((0, 0), (1, 0), (2, 0), session=(0, 0), max_bytes=1)
        assert [number for number in answer.order if answer.data[number]] == [0]
        firsts = []
        for epoch in range(1, 7):
            answer = await client.fetch(session=(answer.session, epoch), max_bytes=1)
            firsts += [number for number in answer.order if answer.data[number]]
        assert firsts == [0, 1, 2, 0, 1, 2]


@simulated(seeds=[0])
async def test_a_fetch_session_with_a_wrong_epoch_or_id_is_refused() -> None:
    async with clients(count=1) as (cluster, client):
        number = (await client.fetch((0, 0), session=(0, 0))).session
        assert (await client.fetch(session=(number, 2))).code == 71
        assert (await client.fetch(session=(number + 1, 1))).code == 70
        named = {FetchTopic("u", None): [0]}  # selects version 12
        assert (await client.fetch(session=(number, 1), forgotten=named)).code == 106
        assert (await client.fetch(session=(number, 1))).code == 0
        again = (await client.fetch((0, 0), session=(number, 0))).session
        assert (await client.fetch(session=(number, 2))).code == 70  # replaced by another session
        number = again
        cluster.drop_sessions(1)
        gone = await client.fetch(session=(number, 2))
        assert (gone.code, gone.session) == (70, 0)


@simulated(seeds=range(3))
async def test_the_second_of_two_concurrent_fetches_invalidates_the_first() -> None:
    async with clients(latency=(0.0, 0.0)) as (_, client):
        number = (await client.fetch((0, 0), session=(0, 0))).session
        async with asyncio.TaskGroup() as group:
            first = group.create_task(client.fetch(session=(number, 1), max_wait_ms=1000))
            await asyncio.sleep(0.5)
            await client.fetch(session=(number, 2), slot=1)
        assert (first.result().code, first.result().session) == (71, number)


@simulated(seeds=[0])
async def test_no_fetch_session_is_created_above_the_limit() -> None:
    async with clients(count=1, sessions=1) as (_, client):
        assert (await client.fetch((0, 0), session=(0, 0))).session
        answer = await client.fetch((0, 0), session=(0, 0))
        assert (answer.session, answer.offsets()) == (0, [0])


# --- leaders, epochs, topics ---------------------------------------------------------------------


@simulated(seeds=[0])
async def test_a_broker_that_is_not_the_leader_names_the_leader() -> None:
    async with clients(count=1, racks=["a", "b", "c"], versions={1: 16}) as (cluster, client):
        cluster.view.partition(T0).replicas = (1, 2)
        answer = await client.fetch((0, 0), node=3)
        assert answer.codes == {0: 6}
        assert answer.parts[0].current_leader == (1, 1)
        assert answer.endpoints == [(1, "broker-1", 9092, "a")]
    async with clients(count=1, versions={1: 15}) as (cluster, client):
        cluster.move_leader(T0, 2)
        answer = await client.fetch((0, 0, 1))
        assert (answer.codes, answer.parts[0].current_leader) == ({0: 74}, None)


@simulated(seeds=[0])
async def test_older_and_newer_epochs_have_different_errors() -> None:
    async with clients(count=1) as (_, client):
        assert (await client.fetch((0, 0, 0))).codes == {0: 74}
        assert (await client.fetch((0, 0, 1))).codes == {0: 0}
        assert (await client.fetch((0, 0, 2))).codes == {0: 75}


@simulated(seeds=[0])
async def test_a_truncated_log_reports_the_diverging_epoch() -> None:
    async with clients(count=3) as (cluster, client):
        cluster.append("t", 0, 2)
        assert cluster.truncate(T0, 1) == cluster.end(T0) == 3  # with the whole batch
        assert cluster.append("t", 0, 4) == range(3, 7)
        assert [payload.epoch for payload in cluster.records(T0)] == [1, 1, 1, 2, 2, 2, 2]
        answer = await client.fetch((0, 5, -1, 1))
        assert (answer.parts[0].diverging_epoch, answer.order) == ((1, 3), [0])
        assert (await client.fetch((0, 5, -1, 2))).parts[0].diverging_epoch is None
        ends = {"t": [EpochRow(0, 1), EpochRow(0, 2), EpochRow(0, 3)]}
        (topic,) = (await client.ask(OffsetForLeaderEpochRequest(ends)))["topics"]
        results = [(row["leader_epoch"], row["end_offset"]) for row in topic["partitions"]]
        assert results == [(1, 3), (2, 7), (-1, -1)]


@simulated(seeds=[0])
async def test_clients_in_a_rack_are_redirected_to_its_replica() -> None:
    async with clients(count=2, racks=["a", "b", "c"]) as (cluster, client):
        near = await client.fetch((0, 0), rack="b")
        assert (near.parts[0].preferred_read_replica, near.offsets()) == (2, [])
        assert (await client.fetch((0, 0), rack="a")).offsets() == [0, 1]
        assert (await client.fetch((0, 0), rack="nowhere")).offsets() == [0, 1]
        assert (await client.fetch((0, 0), node=2, rack="b")).offsets() == [0, 1]
        cluster.go_stale(2)
        cluster.append("t", 0, 1)
        assert (await client.fetch((0, 3), node=2, rack="b")).codes == {0: 1}  # the replica lags
        cluster.catch_up(2)
        assert (await client.fetch((0, 2), node=2, rack="b")).offsets() == [2]


@simulated(seeds=[0])
async def test_a_stale_broker_returns_old_metadata() -> None:
    async with clients(count=1) as (cluster, client):
        cluster.go_stale(1)
        cluster.move_leader(T0, 2)
        cluster.append("t", 0, 1)
        cluster.add_topic("u")
        old = await client.ask(MetadataRequest(["t", "u"]))
        assert [topic["error_code"] for topic in old["topics"]] == [0, 3]
        assert old["topics"][0]["partitions"][0]["leader"] == 1
        assert (await client.fetch((0, 0, 1))).offsets() == [
            0
        ]  # still the leader in its own metadata
        assert (await client.fetch((0, 0, 2))).codes == {0: 75}
        asyncio.get_running_loop().call_later(1, cluster.catch_up, 1)
        assert (await client.fetch((0, 1, 1), max_wait_ms=10_000)).codes == {0: 74}
        assert now() < 2
        fresh = await client.ask(MetadataRequest(["t", "u"]))
        assert fresh["topics"][0]["partitions"][0]["leader"] == 2


@simulated(seeds=[0])
async def test_a_recreated_topic_has_another_id() -> None:
    async with clients(count=2) as (cluster, client):
        asked = client.fetching((0, 0), session=(0, 0))
        connection = await client.connection()
        raw = await connection.send_raw(asked)
        session = int.from_bytes(raw.body[6:10], "big")
        old = cluster.view.topic("t").topic_id
        assert cluster.recreate_topic("t") != old
        cluster.move_leader(T0, 1)
        cluster.append("t", 0, 1)
        assert cluster.records(T0) == [RecordPayload("t", 0, 0, 1, 2)]
        assert (await client.fetch(session=(session, 1))).codes == {0: 103}
        answer = await connection.send_raw(asked)
        assert bytes(answer.body[10:27]) == b"\x02" + old.bytes
        assert (await client.fetch((0, 0))).observed() == cluster.records(T0)


@simulated(seeds=[0])
async def test_added_partitions_can_be_read() -> None:
    async with clients() as (cluster, client):
        assert (await client.fetch((1, 0))).codes == {1: 3}
        cluster.add_partitions("t", 2)
        cluster.append("t", 1, 1)
        assert (await client.fetch((1, 0), node=cluster.leader(T1))).observed(1)[0].partition == 1


@simulated(seeds=[0])
async def test_offsets_are_found_by_time() -> None:
    async with clients(count=2) as (cluster, client):
        await asyncio.sleep(10)
        cluster.append("t", 0, 2)
        moment = 1_700_000_000_000
        times = [EARLIEST, LATEST, moment, moment + 1, moment + 2, moment + 10_001, moment + 11_000]
        rows = {"t": [ListedOffset(0, time) for time in times]}
        (topic,) = (await client.ask(ListOffsetsRequest(rows)))["topics"]
        assert [row["offset"] for row in topic["partitions"]] == [0, 4, 0, 1, 2, 3, -1]
        (topic,) = (await client.ask(ListOffsetsRequest(rows), node=2))["topics"]
        assert {row["error_code"] for row in topic["partitions"]} == {6}


# --- faults in responses -------------------------------------------------------------------------


@simulated(seeds=[0])
async def test_the_next_response_has_the_requested_error() -> None:
    async with clients(count=1) as (cluster, client):
        cluster.fail_next(1, 56)
        assert (await client.fetch((0, 0))).codes == {0: 56}
        assert (await client.fetch((0, 0))).codes == {0: 0}
        cluster.fail_next(1, 70)
        assert (await client.fetch((0, 0))).code == 70
        cluster.fail_next(3, 5, node_id=2, times=2)
        assert (await client.ask(MetadataRequest(["t"])))["topics"][0]["error_code"] == 0
        for code in (5, 5, 0):
            answer = await client.ask(MetadataRequest(["t"]), node=2)
            assert answer["topics"][0]["error_code"] == code
        cluster.fail_next(2, 78)
        listed = await client.ask(ListOffsetsRequest({"t": [ListedOffset(0, LATEST)]}))
        assert listed["topics"][0]["partitions"][0]["error_code"] == 78
        cluster.fail_next(23, 29)
        ends = await client.ask(OffsetForLeaderEpochRequest({"t": [EpochRow(0, 0)]}))
        assert ends["topics"][0]["partitions"][0]["error_code"] == 29


@simulated(seeds=[0])
async def test_a_throttled_client_gets_no_records_and_waits() -> None:
    async with clients(count=1, latency=(0.0, 0.0)) as (cluster, client):
        cluster.throttle(1, 3)
        answer = await client.fetch((0, 0), session=(0, 0))
        assert (answer.throttle_ms, answer.session, answer.order) == (3000, 0, [])
        assert now() == 0
        assert (await client.fetch((0, 0))).offsets() == [0]
        assert now() == 3
        assert len(cluster.brokers[1].sessions) == 0


# --- the cluster itself --------------------------------------------------------------------------


@simulated(seeds=[0])
async def test_brokers_may_support_older_versions_only() -> None:
    async with clients(count=1, versions={1: 11, 23: 1}) as (_, client):
        connection = await client.connection()
        assert (await connection.send_raw(client.fetching((0, 0)))).version == 11
        with pytest.raises(UnsupportedBroker):
            await client.ask(OffsetForLeaderEpochRequest({"t": [EpochRow(0, 0)]}))


ECHO = Api(
    "Echo",
    999,
    range(2),
    1,
    (Field("number", Int32),),
    (Field("number", Int32), Field("error_code", Int16, 1)),
)


class EchoRequest(TableRequest, api=ECHO):
    def __init__(self, number: int) -> None:
        super().__init__({"number": number})


@simulated(seeds=[0])
async def test_handlers_can_be_added_for_other_apis() -> None:
    def echo(request: Request, requested: dict[str, Any]) -> dict[str, Any]:
        return {"number": requested["number"] + request.broker.node_id, "error_code": request.code}

    async with clients(handlers={**HANDLERS, 999: handler(ECHO, echo)}) as (cluster, client):
        cluster.fail_next(999, 5)
        assert (await client.ask(EchoRequest(40), node=2))["number"] == 42
        assert cluster.brokers[2].requests == {999: 1}


@simulated(seeds=[0])
async def test_unknown_topics_partitions_and_nodes_are_refused() -> None:
    async with FakeCluster(Random(1)) as cluster:
        cluster.add_topic("t")
        with pytest.raises(ConfigError, match=r"no topic 'u'.*its topics are t"):
            cluster.append("u", 0, 1)
        with pytest.raises(ConfigError, match=r"no partition 3 of 't', which has 1 partitions"):
            cluster.append("t", 3, 1)
        with pytest.raises(ConfigError, match="already"):
            cluster.add_topic("t")
        with pytest.raises(ConfigError, match="`total` must be more, got 1"):
            cluster.add_partitions("t", 1)
        with pytest.raises(ConfigError, match=r"no node 4.*1 to 3"):
            cluster.kill(4)
        with pytest.raises(ConfigError, match="node 4 cannot lead"):
            cluster.move_leader(T0, 4)
    with pytest.raises(ConfigError, match="2 `racks` for 3 brokers"):
        FakeCluster(Random(1), racks=["a", "b"])


def test_equal_randomness_gives_equal_runs() -> None:
    async def main() -> list[float]:
        times = []
        async with clients(count=3, latency=(0.0, 1.0)) as (_, client):
            for _ in range(10):
                await client.fetch((0, 0))
                times.append(now())
        return times

    assert run(main) == run(main)
    assert len(set(run(main))) == 10


@simulated(seeds=[0])
async def test_clients_of_a_cluster_know_its_addresses() -> None:
    async with FakeCluster(Random(1), brokers=2) as cluster:
        assert cluster.config(client_id="x").addresses == (
            Address("broker-1", 9092),
            Address("broker-2", 9092),
        )
