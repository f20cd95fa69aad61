"""The Fetch API: reads of logs, waits for records, and fetch sessions."""

import asyncio
from typing import Final

from asyncconsumer.protocol.messages import FETCH as API
from asyncconsumer.testing.fake_kafka.broker import FakeBroker, Handler, Request
from asyncconsumer.testing.fake_kafka.codes import (
    FENCED_LEADER_EPOCH,
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INCONSISTENT_TOPIC_ID,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from asyncconsumer.testing.fake_kafka.fetch_codec import DecodedFetch, decode, encode
from asyncconsumer.testing.fake_kafka.sessions import FIRST_WITH_IDS, Ask, Context, Key, Part
from asyncconsumer.testing.fake_kafka.state import BrokerEndpoint, Partition

_FROM_FOLLOWERS: Final = 11  # the first version that may read from followers
_TELLS_LEADERS: Final = 16  # KIP-951
_OF_THE_WHOLE: Final = (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    FETCH_SESSION_TOPIC_ID_ERROR,
)


def answer_fetch(request: Request) -> None:
    """Handle a Fetch request.

    Send the response when its `min_bytes` are available, or after its `max_wait` at the latest.
    """
    fetch = decode(request.received.data, request.start, request.received.version)
    broker = request.broker
    context = broker.sessions.context(
        fetch.version, fetch.session, fetch.asks, fetch.forgotten, broker.view.names
    )
    if request.code in _OF_THE_WHOLE:
        context = Context(request.code, {})
    Fetch(request, fetch, context).begin()


FETCH: Final = Handler(API.versions, API.flexible_since, answer_fetch)


class Fetch:
    """A Fetch request that a broker handles, until its response is sent."""

    def __init__(self, request: Request, fetch: DecodedFetch, context: Context) -> None:
        self._request = request
        self._broker = request.broker
        self._fetch = fetch
        self._context = context
        self._refused: dict[Key, Part] = {}
        self._interesting: dict[Key, tuple[str, Ask]] = {}
        self._watched: list[Partition] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Read the logs, and send the response if it has `min_bytes` or if `max_wait` is 0.

        Otherwise send the response when enough bytes are available, or after `max_wait`.
        """
        self._sort()
        parts = self._read()
        if self._fetch.max_wait <= 0 or not parts or self._enough(parts):
            self._finish(parts)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._fetch.max_wait, self._time_is_up)
        for name, number in {(name, key[1]) for key, (name, _) in self._interesting.items()}:
            partition = self._broker.view.find(name, number)
            assert partition is not None
            partition.watchers[self._recheck] = None
            self._watched.append(partition)
        self._request.transport.on_end(self._forget)

    def _sort(self) -> None:
        """Divide the requested partitions into partitions to read, and partitions with an error."""
        for key, (name, ask) in self._context.requested.items():
            if self._request.code:
                self._refused[key] = Part(self._request.code, aborted=[])
            elif name is None:
                self._refused[key] = Part(UNKNOWN_TOPIC_ID, aborted=[])
            elif self._broker.view.find(name, key[1]) is None:
                self._refused[key] = Part(UNKNOWN_TOPIC_OR_PARTITION, aborted=[])
            else:
                self._interesting[key] = name, ask

    # --- waiting ---------------------------------------------------------------------------------

    def _enough(self, parts: dict[Key, Part]) -> bool:
        size = 0
        for part in parts.values():
            if part.error or part.diverging or part.replica >= 0:
                return True
            size += len(part.data)
        return size >= self._fetch.min_bytes

    def _recheck(self) -> None:
        self._broker.when_running(self._perhaps_finish)

    def _perhaps_finish(self) -> None:
        if self._timer is not None and self._enough(parts := self._read()):
            self._forget()
            self._finish(parts)

    def _time_is_up(self) -> None:
        self._broker.when_running(self._finish_late)

    def _finish_late(self) -> None:
        if self._timer is not None:
            self._forget()
            self._finish(self._read())

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._watched:
            partition.watchers.pop(self._recheck, None)

    # --- reading ---------------------------------------------------------------------------------

    def _read(self) -> dict[Key, Part]:
        parts: dict[Key, Part] = {}
        room, at_least_one = self._fetch.max_bytes, True
        for key, (name, ask) in self._interesting.items():
            part = parts[key] = self._read_one(key, name, ask, room, at_least_one=at_least_one)
            if part.data:
                at_least_one = False
                room = max(0, room - len(part.data))
        return parts

    def _read_one(self, key: Key, name: str, ask: Ask, room: int, *, at_least_one: bool) -> Part:
        node, view = self._broker.node_id, self._broker.view
        partition = view.find(name, key[1])
        if partition is None:
            return Part(UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(key[0], bytes) and view.topics[name].topic_id.bytes != key[0]:
            return Part(INCONSISTENT_TOPIC_ID)
        if code := self._no_access(partition, ask.epoch):
            return Part(code, leader=(partition.leader, partition.epoch))
        log = partition.log
        replica = near_replica(self._broker, partition, self._fetch.rack)
        if replica >= 0 and partition.leader == node and log.has(ask.offset):
            return Part(NONE, log.high, log.stable, log.start, replica=replica)
        if ask.last_epoch >= 0:
            epoch, end = log.end_of_epoch(ask.last_epoch)
            if epoch < 0 or ask.offset < log.start:
                return Part(OFFSET_OUT_OF_RANGE)
            if epoch < ask.last_epoch or end < ask.offset:
                return Part(NONE, log.high, log.stable, log.start, diverging=(epoch, end))
        if not log.has(ask.offset):
            return Part(OFFSET_OUT_OF_RANGE)
        end = log.stable if self._fetch.committed else log.high
        size = min(ask.max_bytes, room)
        data = log.read(ask.offset, size, at_least_one=at_least_one, end=end)
        aborted = None
        if self._fetch.committed:
            aborted = log.aborted_between(ask.offset, end) if data else []
        return Part(NONE, log.high, log.stable, log.start, aborted, data=data)

    def _no_access(self, partition: Partition, epoch: int) -> int:
        """Return the error code if this broker must not serve a partition to the client, or 0."""
        node = self._broker.node_id
        if node not in partition.replicas:
            return NOT_LEADER_OR_FOLLOWER
        only_leader = self._fetch.version < _FROM_FOLLOWERS
        return epoch_trouble(partition, epoch) or (
            NOT_LEADER_OR_FOLLOWER if only_leader and partition.leader != node else NONE
        )

    # --- answering -------------------------------------------------------------------------------

    def _finish(self, parts: dict[Key, Part]) -> None:
        broker, version = self._broker, self._fetch.version
        if broker.throttled:
            self._throttle(broker.throttled.pop(0))
            return
        every = {**parts, **self._refused}
        error, session, changed = broker.sessions.finish(
            self._context, every, by_id=version >= FIRST_WITH_IDS
        )
        endpoints: list[BrokerEndpoint] = []
        if any(part.leader for part in changed.values()):
            changed, endpoints = self._tell_leaders(changed)
        self._request.answer(encode(version, 0, (error, session), changed, endpoints))

    def _throttle(self, seconds: float) -> None:
        """Send a response without records, with `seconds` as its throttle time.

        Handle the next request of the connection after this time.
        """
        context = self._context._replace(wants_session=False)
        error, session, _ = self._broker.sessions.finish(context, {}, by_id=False)
        body = encode(self._fetch.version, int(seconds * 1000), (error, session), {}, [])
        self._request.answer(body, pause=seconds)

    def _tell_leaders(self, parts: dict[Key, Part]) -> tuple[dict[Key, Part], list[BrokerEndpoint]]:
        """Return the partitions of the response, and the addresses of the leaders named in them.

        A partition names its leader only if its error says that this broker is not the leader, and
        if the version of the request allows it (KIP-951).
        """
        if self._fetch.version < _TELLS_LEADERS:
            return {key: part._replace(leader=None) for key, part in parts.items()}, []
        known, endpoints = self._broker.view.endpoints, {}
        for key, part in parts.items():
            if part.leader is None:
                continue
            if part.error not in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH):
                parts[key] = part._replace(leader=None)
            elif part.leader[0] in known:
                endpoints[part.leader[0]] = known[part.leader[0]]
        return parts, list(endpoints.values())


def epoch_trouble(partition: Partition, epoch: int) -> int:
    """Return the error code if the client's leader epoch is not the broker's, or 0."""
    if epoch in (-1, partition.epoch):
        return NONE
    return FENCED_LEADER_EPOCH if epoch < partition.epoch else UNKNOWN_LEADER_EPOCH


def near_replica(broker: FakeBroker, partition: Partition, rack: str) -> int:
    """Return the id of an in-sync replica in the client's rack.

    Return -1 if the client must read from the leader, because there is no such replica, or because
    the leader is in that rack as well.
    """
    if not (rack and broker.rules.rack_aware):
        return -1
    endpoints = broker.view.endpoints
    near = [node for node in partition.isr if node in endpoints and endpoints[node].rack == rack]
    return -1 if not near or partition.leader in near else near[0]
