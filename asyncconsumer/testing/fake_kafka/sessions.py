"""The fetch sessions (KIP-227) of a broker."""

from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from asyncconsumer.testing.fake_kafka.codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)

FIRST_WITH_IDS: Final = 13  # the first version of Fetch with topic ids
_INITIAL, _FINAL = 0, -1

Key = tuple[str | bytes, int]  # name or id of a topic, and a partition number


class Ask(NamedTuple):
    """The parameters of one partition in a Fetch request."""

    epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


class Part(NamedTuple):
    """The result for one partition in a Fetch response."""

    error: int = NONE
    high: int = -1
    stable: int = -1
    start: int = -1
    aborted: list[tuple[int, int]] | None = None
    replica: int = -1  # preferred read replica
    data: bytes = b""
    leader: tuple[int, int] | None = None  # and its leader epoch
    diverging: tuple[int, int] | None = None  # diverging epoch and its end offset


@dataclass(slots=True, eq=False)
class Cached:
    """A partition of a fetch session: its last requested parameters and last returned offsets."""

    name: str | None  # of a topic with an id; kept even if another topic takes the name
    ask: Ask
    high: int = -1
    start: int = -1

    def news(self, part: Part) -> bool:
        """Return whether an incremental response must include `part`. Then store its offsets.

        `part` is the result for this partition. It must be included if it has records or an error,
        or if its offsets have changed.
        """
        sent = self.high, self.start
        self.high, self.start = part.high, part.start  # -1 of an error: sent again after the error
        return bool(
            part.data
            or part.error
            or sent != (part.high, part.start)
            or part.replica >= 0
            or part.diverging
        )


class Session:
    """A fetch session. Its dict of partitions has the order in which they are read."""

    def __init__(self, number: int, *, by_id: bool, partitions: dict[Key, Cached]) -> None:
        self.id = number
        self.by_id = by_id
        self.epoch = 1
        self.partitions = partitions

    def update(self, asks: dict[Key, Ask], forgotten: list[Key], names: dict[bytes, str]) -> None:
        """Apply an incremental Fetch request: add or change `asks`, and remove `forgotten`.

        `names` has the topic name for each topic id.
        """
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
        """Return the partitions that an incremental response must include.

        Partitions with records move to the end of the session, so that the others are read first
        next time.
        """
        changed = {}
        for key, part in parts.items():
            cached = self.partitions.get(key)
            if cached is None or not cached.news(part):
                continue
            changed[key] = part
            if part.data:
                self.partitions[key] = self.partitions.pop(key)
        return changed


def name_of(key: Key, names: dict[bytes, str]) -> str | None:
    """Return the topic name of a key, or None for an unknown topic id.

    A key has a topic name or, in newer versions of Fetch, a topic id.
    """
    return key[0] if isinstance(key[0], str) else names.get(key[0])


def next_epoch(epoch: int) -> int:
    """Return the session epoch after `epoch`. After the largest number, it is 1."""
    return 1 if epoch == 2**31 - 1 else epoch + 1


class Context(NamedTuple):
    """The partitions to read for a Fetch request, or an error code, and its fetch session."""

    error: int
    requested: dict[Key, tuple[str | None, Ask]]
    session: Session | None = None
    epoch: int = 0  # the expected session epoch when the response is made
    wants_session: bool = False


class Sessions:
    """The fetch sessions of a broker. Their maximum number is `room`."""

    def __init__(self, randomness: Random, room: int) -> None:
        self.room = room
        self._randomness = randomness
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def clear(self) -> None:
        """Remove all sessions."""
        self._sessions.clear()

    def context(
        self,
        version: int,
        session_epoch: tuple[int, int],
        asks: dict[Key, Ask],
        forgotten: list[Key],
        names: dict[bytes, str],
    ) -> Context:
        """Return the partitions to read for a Fetch request, which may use a fetch session.

        `session_epoch` has the session id and the epoch of the request. `asks` and `forgotten` are
        the partitions that it adds and removes, and `names` has the topic name for each topic id.
        If the session is invalid, the result has an error code.
        """
        number, epoch = session_epoch
        if epoch in (_INITIAL, _FINAL):
            self._sessions.pop(number, None)  # a full request closes the session that it names
            requested = {key: (name_of(key, names), ask) for key, ask in asks.items()}
            return Context(NONE, requested, wants_session=epoch == _INITIAL)
        session = self._sessions.get(number)
        if session is None:
            return Context(FETCH_SESSION_ID_NOT_FOUND, {})
        if session.epoch != epoch:
            return Context(INVALID_FETCH_SESSION_EPOCH, {})
        if session.by_id != (version >= FIRST_WITH_IDS):
            return Context(FETCH_SESSION_TOPIC_ID_ERROR, {})
        session.update(asks, forgotten, names)
        if not session.partitions:
            del self._sessions[number]
            return Context(NONE, {})
        session.epoch = next_epoch(epoch)
        requested = {key: (cached.name, cached.ask) for key, cached in session.partitions.items()}
        return Context(NONE, requested, session, session.epoch)

    def finish(
        self, context: Context, parts: dict[Key, Part], *, by_id: bool
    ) -> tuple[int, int, dict[Key, Part]]:
        """Return the error code, the session id and the partitions of a Fetch response.

        If the request asks for a new session, create it. If it uses a session, return only the
        partitions that have changed since the last response.
        """
        if context.error:
            return context.error, 0, {}
        if (session := context.session) is not None:
            if session.epoch != context.epoch:  # a later request was handled before this one
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
            name, ask = context.requested[key]
            partitions[key] = Cached(name, ask, part.high, part.start)
        self._sessions[number] = Session(number, by_id=by_id, partitions=partitions)
        return number
