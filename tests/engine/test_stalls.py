"""What should move and does not is told once, and told again when it moves."""

import pytest

from asyncconsumer.chunks.budget import Budget
from asyncconsumer.chunks.channel import Channel
from asyncconsumer.fetch.cursor import Cursor, Wanted
from asyncconsumer.fetch.events import Recovered, Stalled
from asyncconsumer.fetch.stalls import Sight, Stalls
from asyncconsumer.model import TopicPartition

pytestmark = pytest.mark.fast

AT = TopicPartition("t", 0)


def homeless() -> Cursor:
    return Cursor.of(AT, Wanted(Channel(Budget(1000)), 5))


def kinds(news: list[Stalled | Recovered]) -> list[type]:
    return [type(one) for one in news]


def test_a_stall_is_told_once_after_the_time_allowed_and_so_is_its_end() -> None:
    stalls, cursor = Stalls(10.0), homeless()
    sights = [Sight(cursor, None, [])]
    assert stalls.look(sights, 0.0) == []
    assert stalls.look(sights, 9.9) == []
    (told,) = stalls.look(sights, 10.0)
    assert isinstance(told, Stalled)
    assert (told.partition, told.seconds) == (AT, 10.0)
    assert stalls.look(sights, 11.0) == []
    assert stalls.now[AT].seconds == 11.0
    cursor.advance(6, 0)
    assert stalls.look(sights, 12.0) == [Recovered(AT, 12.0)]
    assert stalls.now == {}
    assert stalls.look(sights, 21.9) == []  # it moved at 12, as far as can be seen
    assert kinds(stalls.look(sights, 22.0)) == [Stalled]


def test_what_need_not_move_has_recovered_and_what_is_not_wanted_is_forgotten() -> None:
    stalls, cursor = Stalls(10.0), homeless()
    sights = [Sight(cursor, None, [])]
    stalls.look(sights, 0.0)
    assert kinds(stalls.look(sights, 10.0)) == [Stalled]
    cursor.paused = True
    assert kinds(stalls.look(sights, 11.0)) == [Recovered]
    cursor.paused = False
    assert stalls.look(sights, 20.0) == []  # its time begins anew
    assert kinds(stalls.look(sights, 30.0)) == [Stalled]
    assert stalls.look([], 31.0) == []
    assert stalls.now == {}
