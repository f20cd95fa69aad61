"""The limits after which a worker is replaced, and the usage of a worker."""

import pytest

from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.types import TopicPartition
from asyncconsumer.workers.recycling import NO_LIMITS, RecycleLimits, Usage, resident_bytes

pytestmark = pytest.mark.fast

USAGE = Usage(age=90.0, records=1000, memory=300 * 2**20)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (NO_LIMITS, None),
        (RecycleLimits(records=1001, seconds=91, memory_mib=301), None),
        (RecycleLimits(records=1000), "it has read 1000 records"),
        (RecycleLimits(seconds=90), "it has run for 90 s"),
        (RecycleLimits(memory_mib=300), "it uses 300 MiB of memory"),
    ],
)
def test_a_reached_limit_is_named(limits: RecycleLimits, reason: str | None) -> None:
    assert limits.exceeded_by(USAGE) == reason


def test_resident_bytes_are_those_of_this_process() -> None:
    before = resident_bytes()
    block = bytearray(64 * 2**20)
    block[:: 2**12] = b"x" * 2**14
    assert before > 2**20
    assert resident_bytes() - before > 60 * 2**20


def test_records_of_revoked_partitions_remain_counted() -> None:
    recorder, tp = Recorder(), TopicPartition("orders", 0)
    recorder.meter(tp).add(5, 100)
    recorder.forget([tp])
    recorder.meter(tp).add(2, 10)
    assert recorder.consumed_records == 7
