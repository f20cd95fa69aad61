"""The policies for fetch errors that both engines share."""

from uuid import UUID

import pytest

from asyncconsumer.errors import (
    ConnectionLost,
    CorruptMessage,
    CorruptRecords,
    LeaderNotAvailable,
    OffsetUnavailable,
)
from asyncconsumer.fetch.policy import (
    NO_ERRORS,
    NO_REPLICA,
    FetchErrors,
    LogEnds,
    OffsetReset,
    PreferredReplica,
    TopicIds,
)
from asyncconsumer.protocol.messages import EARLIEST, LATEST
from asyncconsumer.types import TopicPartition

pytestmark = pytest.mark.fast

TP = TopicPartition("a", 0)
OLD, CURRENT, NEW = UUID(int=1), UUID(int=2), UUID(int=3)


def test_a_replica_is_used_for_five_minutes() -> None:
    replica = PreferredReplica.redirected(7, 1000.0)
    assert replica.node_id == 7
    assert not replica.is_expired(1299.9)
    assert replica.is_expired(1300.0)
    assert not replica.is_avoided(1000.0)


def test_a_failed_replica_is_avoided_for_thirty_seconds() -> None:
    replica = PreferredReplica.redirected(7, 1000.0).failed(1010.0)
    assert replica.node_id is None
    assert replica.is_avoided(1039.9)
    assert not replica.is_avoided(1040.0)
    assert not replica.is_expired(1040.0)


def test_a_failed_leader_does_not_cause_replicas_to_be_avoided() -> None:
    assert NO_REPLICA.failed(1000.0) is NO_REPLICA
    avoided = PreferredReplica.redirected(7, 1000.0).failed(1010.0)
    assert avoided.failed(1020.0) is avoided


@pytest.mark.parametrize(("policy", "target"), [("earliest", 10), ("latest", 20)])
@pytest.mark.parametrize("offset", [9, 21])
def test_an_offset_out_of_range_is_reset(policy: str, target: int, offset: int) -> None:
    assert OffsetReset(policy).relocate(TP, offset, LogEnds(10, 20)) == target


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("offset", [10, 15, 20])
def test_an_offset_within_the_log_is_kept(policy: str, offset: int) -> None:
    assert OffsetReset(policy).relocate(TP, offset, LogEnds(10, 20)) is None


def test_an_offset_out_of_range_without_a_reset_is_an_error() -> None:
    with pytest.raises(OffsetUnavailable) as caught:
        OffsetReset("none").relocate(TP, 9, LogEnds(10, 20))
    assert (caught.value.offset, caught.value.earliest, caught.value.latest) == (9, 10, 20)


def test_the_reset_policy_names_the_start_in_a_recreated_topic() -> None:
    assert OffsetReset("earliest").start == EARLIEST
    assert OffsetReset("latest").start == LATEST


def test_the_third_corrupt_response_is_final() -> None:
    reported = CorruptMessage("a[0]")
    errors = NO_ERRORS.add(reported, 1.0)
    assert errors.final_corruption(TP, 5, reported) is None
    final = errors.add(reported, 2.0).final_corruption(TP, 5, reported)
    assert isinstance(final, CorruptRecords)
    assert (final.topic, final.partition, final.offset) == (*TP, 5)


def test_corrupt_records_keep_the_offset_to_resume_at() -> None:
    error = CorruptRecords(*TP, 5, "a bad checksum", 8)
    assert NO_ERRORS.add(error, 1.0).final_corruption(TP, 5, error) is None
    assert NO_ERRORS.add(error, 1.0).add(error, 2.0).final_corruption(TP, 5, error) is error


def test_other_errors_do_not_count_as_corrupt_responses() -> None:
    lost = ConnectionLost("k:9092", "closed")
    errors = NO_ERRORS.add(lost, 1.0).add(lost, 2.0).add(lost, 3.0)
    assert errors == FetchErrors(lost, 1.0, 0)
    assert errors.final_corruption(TP, 5, CorruptMessage("a[0]")) is None


def test_another_topic_id_means_a_recreated_topic() -> None:
    ids = TopicIds(CURRENT, frozenset({OLD}))
    assert ids.is_recreated(TP, NEW)
    assert not ids.is_recreated(TP, CURRENT)
    assert not TopicIds().is_recreated(TP, NEW)
    assert ids.switch(NEW) == TopicIds(NEW, frozenset({OLD, CURRENT}))
    assert TopicIds().switch(NEW) == TopicIds(NEW)


@pytest.mark.parametrize("reported", [OLD, None])
def test_old_metadata_does_not_mean_a_recreated_topic(reported: UUID | None) -> None:
    with pytest.raises(LeaderNotAvailable, match="deleted topic"):
        TopicIds(CURRENT, frozenset({OLD})).is_recreated(TP, reported)
