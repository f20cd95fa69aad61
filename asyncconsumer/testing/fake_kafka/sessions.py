"""Fetch sessions (KIP-227) as a broker keeps them."""

from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from asyncconsumer.testing.fake_kafka.codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)

FIRST_WITH_IDS: Final = 13  # the version of Fetch that knows topics by id
_INITIAL, _FINAL = 0, -1

Key = tuple[str | bytes, int]  # name or id of a topic, and a partition's number


class Ask(NamedTuple):
    """What a fetch wants of one partition."""

    epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


class Part(NamedTuple):
    """What a fetch gets of one partition."""

    error: int = NONE
    high: int = -1
    stable: int = -1
    start: int = -1
    aborted: list[tuple[int, int]] | None = None
    replica: int = -1  # to read from instead
    data: bytes = b""
    leader: tuple[int, int] | None = None  # and its epoch
    diverging: tuple[int, int] | None = None  # epoch, and where it ended


@dataclass(slots=True, eq=False)
class Cached:
    """A partition of a session: what was asked last, and what was told last."""

    name: str | None  # of a topic that is known by id; kept even if another takes the name
    ask: Ask
    high: int = -1
    start: int = -1

    def news(self, part: Part) -> bool:
        """Whether an incremental answer must have this; it is told then."""
        told = self.high, self.start
        self.high, self.start = part.high, part.start  # -1 of an error: told again when it is gone
        return bool(
            part.data
            or part.error
            or told != (part.high, part.start)
            or part.replica >= 0
            or part.diverging
        )


class Session:
    """One session: its partitions in the order in which they will be read."""

    def __init__(self, number: int, *, by_id: bool, partitions: dict[Key, Cached]) -> None:
        self.id = number
        self.by_id = by_id
        self.epoch = 1
        self.partitions = partitions

    def update(self, asks: dict[Key, Ask], forgotten: list[Key], names: dict[bytes, str]) -> None:
        """Take over what a request changes."""
        for key, ask in asks.items():
            if (cached := self.partitions.get(key)) is not None:
                cached.ask = ask
            else:
                self.partitions[key] = Cached(name_of(key, names), ask)
        for key in forgotten:
            self.partitions.pop(key, None)
        for key, cached in self.partitions.items():
            cached.name = cached.name or name_of(key, names)

    def select(self, parts: dict[Key, Part]) -> dict[Key, Part]:
        """The news among these. A partition that has records goes to the end, to be fair."""
        found = {}
        for key, part in parts.items():
            cached = self.partitions.get(key)
            if cached is None or not cached.news(part):
                continue
            found[key] = part
            if part.data:
                self.partitions[key] = self.partitions.pop(key)
        return found


def name_of(key: Key, names: dict[bytes, str]) -> str | None:
    """The name of a key's topic; None for an id that is not known."""
    return key[0] if isinstance(key[0], str) else names.get(key[0])


def next_epoch(epoch: int) -> int:
    """The number of the next fetch in a session; 0 would begin a new one."""
    return 1 if epoch == 2**31 - 1 else epoch + 1


class Context(NamedTuple):
    """One fetch: what it is about, with or without a session."""

    error: int
    wanted: dict[Key, tuple[str | None, Ask]]
    session: Session | None = None
    epoch: int = 0  # that the session should still have when the answer is made
    wants_session: bool = False


class Sessions:
    """The sessions of one broker. `room` says how many there may be."""

    def __init__(self, randomness: Random, room: int) -> None:
        self.room = room
        self._randomness = randomness
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Forget them all."""
        self._sessions.clear()

    def context(
        self,
        version: int,
        session: tuple[int, int],
        asks: dict[Key, Ask],
        forgotten: list[Key],
        names: dict[bytes, str],
    ) -> Context:
        """What a request with this session id and epoch is about."""
        number, epoch = session
        if epoch in (_INITIAL, _FINAL):
            self._sessions.pop(number, None)  # a full fetch ends the session that it names
            wanted = {key: (name_of(key, names), ask) for key, ask in asks.items()}
            return Context(NONE, wanted, wants_session=epoch == _INITIAL)
        found = self._sessions.get(number)
        if found is None:
            return Context(FETCH_SESSION_ID_NOT_FOUND, {})
        if found.epoch != epoch:
            return Context(INVALID_FETCH_SESSION_EPOCH, {})
        if found.by_id != (version >= FIRST_WITH_IDS):
            return Context(FETCH_SESSION_TOPIC_ID_ERROR, {})
        found.update(asks, forgotten, names)
        if not found.partitions:
            del self._sessions[number]
            return Context(NONE, {})
        found.epoch = next_epoch(epoch)
        wanted = {key: (cached.name, cached.ask) for key, cached in found.partitions.items()}
        return Context(NONE, wanted, found, found.epoch)

    def finish(
        self, context: Context, parts: dict[Key, Part], *, by_id: bool
    ) -> tuple[int, int, dict[Key, Part]]:
        """Error code, session id and partitions of the answer."""
        if context.error:
            return context.error, 0, {}
        if (session := context.session) is not None:
            if session.epoch != context.epoch:  # another request overtook this one
                return INVALID_FETCH_SESSION_EPOCH, session.id, {}
            return NONE, session.id, session.select(parts)
        if context.wants_session:
            return NONE, self._create(context, parts, by_id=by_id), parts
        return NONE, 0, parts

    def _create(self, context: Context, parts: dict[Key, Part], *, by_id: bool) -> int:
        if len(self._sessions) >= self.room:
            return 0
        number = 0
        while not number or number in self._sessions:
            number = self._randomness.randrange(1, 2**31)
        partitions = {}
        for key, part in parts.items():
            name, ask = context.wanted[key]
            partitions[key] = Cached(name, ask, part.high, part.start)
        self._sessions[number] = Session(number, by_id=by_id, partitions=partitions)
        return number
