"""The cache of decompressed bodies, and its effect on fetches."""

import pytest

from asyncconsumer.buffer.body_cache import BodyCache
from asyncconsumer.buffer.budget import Budget

pytestmark = pytest.mark.fast


class Reader:
    def __init__(self, *, busy: bool = False) -> None:
        self.busy = busy
        self.evicted = 0

    def evict(self) -> bool:
        self.evicted += not self.busy
        return not self.busy


def test_the_least_recently_decompressed_body_is_evicted_first() -> None:
    cache = BodyCache(100)
    first, second, third = Reader(), Reader(), Reader()
    for reader in (first, second):
        cache.make_room(reader)
        assert cache.hold(reader, 40, False) == 40
    cache.hold(first, 40, False)  # the reader has continued with another body
    cache.hold(third, 40, False)
    assert (first.evicted, second.evicted, third.evicted) == (0, 1, 0)
    assert cache.size == 80


def test_a_single_body_may_be_larger_than_the_limit() -> None:
    cache, reader, other = BodyCache(100), Reader(), Reader()
    assert cache.hold(reader, 1000, False) == 1000
    assert reader.evicted == 0
    cache.make_room(other)
    assert reader.evicted == 1
    assert cache.size == 0


def test_a_body_in_use_is_not_evicted() -> None:
    cache, lent, idle, new = BodyCache(100), Reader(busy=True), Reader(), Reader()
    cache.hold(lent, 80, False)
    cache.hold(idle, 10, False)
    cache.hold(new, 50, False)
    assert (lent.evicted, idle.evicted) == (0, 1)
    assert cache.size == 130


def test_evicted_bodies_are_decompressed_in_parts_that_fit_together() -> None:
    cache = BodyCache(10 * 2**20)
    readers = [Reader() for _ in range(20)]
    for reader in readers:
        assert cache.hold(reader, 8 * 2**20, False) == 8 * 2**20
    for reader in readers:
        assert cache.hold(reader, 8 * 2**20, True) == 2**19
    assert cache.size == 10 * 2**20
    before = [reader.evicted for reader in readers]
    for reader in readers:  # no reader evicts the body of another any more
        cache.hold(reader, 2**19, False)
    assert [reader.evicted for reader in readers] == before


def test_an_evicted_body_of_the_only_reader_is_decompressed_whole() -> None:
    cache, reader = BodyCache(100), Reader()
    cache.hold(reader, 1000, False)
    assert cache.hold(reader, 1000, True) == 1000


def test_fetches_evict_idle_bodies_down_to_a_quarter() -> None:
    budget = Budget(1000)
    slow, idle, reading = Reader(), Reader(), Reader()
    budget.bodies.hold(slow, 600, False)
    budget.bodies.hold(idle, 100, False)
    budget.bodies.hold(reading, 100, False)
    assert budget.free == 1000  # idle bodies do not prevent fetches
    budget.take(500)
    assert (slow.evicted, idle.evicted, reading.evicted) == (1, 0, 0)
    assert budget.used + budget.bodies.size <= 1000
    budget.take(500)
    assert (idle.evicted, reading.evicted) == (0, 0)
    budget.bodies.hold(slow, 100, True)
    assert (idle.evicted, budget.bodies.size) == (1, 200)


def test_a_fetch_does_not_evict_a_body_that_is_being_read() -> None:
    budget, reading = Budget(1000), Reader()
    budget.bodies.hold(reading, 5000, False)
    budget.take(700)
    assert reading.evicted == 0
