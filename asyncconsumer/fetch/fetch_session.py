"""Fetch sessions (KIP-227): of thousands of partitions only what changed goes over the wire."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.fetch.fetch_request import (
    MOST_THROTTLE,
    PartitionFetch,
    PartitionResponse,
    check_size,
    request,
    understand_part,
)
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.protocol.messages import FETCH, NO_SESSION, FetchRequest, FetchTopic
from asyncconsumer.records import decoding
from asyncconsumer.types import Address, TopicPartition

_FIRST_WITH_SESSIONS: Final = 7
_MOST: Final = 2**31 - 1
_FIRST_WAIT: Final = 0.05  # seconds, after the second session in a row that was refused
_LONGEST_WAIT: Final = 1.0


class FetchResponse(NamedTuple):
    """What came of one fetch."""

    parts: list[PartitionResponse]
    throttle: float  # seconds that the broker wants to be left alone
    nodes: Mapping[int, Address]  # of the leaders that `parts` name


class FetchSession:
    """What we want of a broker, and what it remembers of that, so that it need not be repeated.

    Who is given no session (the broker is too old, or has no more of them) sends everything each
    time, and asks again for one.
    """

    def __init__(self) -> None:
        self._id = 0
        self._number = 0  # of the next fetch within the session; 0 starts a new one
        self._wanted: dict[TopicPartition, PartitionFetch] = {}  # in the order of the next request
        self._known: dict[
            TopicPartition, PartitionFetch
        ] = {}  # to the broker, since the last request
        self._changed: dict[TopicPartition, None] = {}  # where those two may differ
        self._names: dict[bytes, str] = {}
        self._refused = 0  # sessions in a row
        self._max_bytes = 0  # of the last request

    def want(self, partition: TopicPartition, ask: PartitionFetch) -> None:
        """Have it in the next request and all that follow.

        It goes to the end of the line: a broker that keeps no session fills its answer in order.
        """
        self._wanted.pop(partition, None)
        self._wanted[partition] = ask
        self._changed[partition] = None

    def drop(self, partition: TopicPartition) -> None:
        """Have it no more, if it was wanted at all."""
        if self._wanted.pop(partition, None) is not None:
            self._changed[partition] = None

    def request(
        self,
        config: FetchConfig,
        versions: Mapping[int, tuple[int, int]],
        *,
        max_wait_ms: int,
        max_bytes: int,
        rack: str,
    ) -> FetchRequest:
        """The next fetch, of exactly what is wanted. Send it, or `reset`."""
        told: Mapping[TopicPartition, PartitionFetch]
        forgotten: Mapping[FetchTopic, Sequence[int]] = {}
        if self._number == 0:
            told, self._known = self._wanted, dict(self._wanted)
        else:
            told, forgotten = self._news()
        self._changed.clear()
        self._max_bytes = max_bytes
        last = None
        for one, ask in told.items():
            if ask.topic_id is not last and ask.topic_id is not None:  # thousands have the same
                last = ask.topic_id
                self._names[last.bytes] = one.topic
        speaks = versions.get(FETCH.key, (0, 0))[1] >= _FIRST_WITH_SESSIONS
        return request(
            told,
            config,
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            session=(self._id, self._number) if speaks else NO_SESSION,
            forgotten=forgotten,
            rack=rack,
        )

    def _news(self) -> tuple[dict[TopicPartition, PartitionFetch], dict[FetchTopic, list[int]]]:
        """What the broker does not know yet, and what it is to forget; it knows both then."""
        told: dict[TopicPartition, PartitionFetch] = {}
        forgotten: dict[FetchTopic, list[int]] = {}
        for one in self._changed:
            now, before = self._wanted.get(one), self._known.get(one)
            if before is not None and (
                now is None
                or (now.topic_id is not before.topic_id and now.topic_id != before.topic_id)
            ):
                topic = FetchTopic(one.topic, before.topic_id)
                forgotten.setdefault(topic, []).append(one.partition)
                del self._known[one]
            if now is not None and now != before:
                told[one] = self._known[one] = now
        return told, forgotten

    def understand(self, raw: RawResponse) -> FetchResponse:
        """What the broker answered to the last request.

        Raises if it refused it all, also because it does not know the session any more: `reset`
        and ask again.
        """
        answer = decoding.fetch_answer(raw.body, raw.version)
        if answer.error_code:
            raise BrokerError.of(answer.error_code, "a fetch")
        check_size(raw, answer, self._max_bytes)
        self._refused = 0
        self._id = answer.session_id
        self._number = self._number % _MOST + 1 if self._id else 0
        told = {node: Address(host or "", port) for node, host, port, _ in answer.node_endpoints}
        nodes = {node: address for node, address in told.items() if address.is_possible}
        parts = [understand_part(raw, part, self._known, self._names) for part in answer.partitions]
        return FetchResponse(parts, min(max(0.0, answer.throttle_ms / 1000), MOST_THROTTLE), nodes)

    def refused(self) -> float:
        """The broker does not know the session: start over, after so many seconds.

        One refusal is usual after a broker restarted. More of them in a row are a fault, of a
        broker or of a proxy, that must not be answered by a storm of fetches.
        """
        self.reset()
        self._refused += 1
        if self._refused < 2:
            return 0.0
        return float(min(_FIRST_WAIT * 2 ** min(self._refused - 2, 10), _LONGEST_WAIT))

    def reset(self) -> None:
        """Start over: the next request tells everything, and ends the session that we had."""
        self._number = 0
        self._known.clear()
        self._names.clear()
