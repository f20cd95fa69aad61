"""The sender of the latency benchmark, with a queue that is soon full."""

from types import SimpleNamespace

import pytest

from benchmarks import _sender

pytestmark = pytest.mark.fast

ROOM = 3


class SlowProducer:
    """A producer with room for a few records until `poll` waits."""

    def __init__(self, config: object) -> None:
        self.queued = 0
        self.sent: list[bytes] = []
        MADE.append(self)

    def produce(self, topic: str, value: bytes, key: bytes | None, partition: int) -> None:
        if self.queued == ROOM:
            raise BufferError("Local: Queue full")
        self.queued += 1
        self.sent.append(value)

    def poll(self, seconds: float) -> None:
        if seconds:
            self.queued = 0

    def flush(self) -> None:
        self.queued = 0


MADE: list[SlowProducer] = []


def test_the_sender_waits_for_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, *(number * 0.001 for number in range(1, 100_000))])
    monkeypatch.setattr(_sender, "Producer", SlowProducer)
    clock = SimpleNamespace(
        perf_counter=lambda: next(moments), perf_counter_ns=lambda: 1, sleep=lambda _: None
    )
    monkeypatch.setattr(_sender, "time", clock)
    _sender.send("k:9092", "t", rate=50_000, seconds=0.05)
    (producer,) = MADE
    assert len(producer.sent) > 10 * ROOM
    assert producer.sent[-1] == b"0"
    assert b"0" not in producer.sent[:-1]
