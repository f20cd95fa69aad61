"""Fetch sessions (KIP-227): requests and responses contain only the partitions that changed."""

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
_FIRST_WAIT: Final = 0.05  # seconds, after the second refusal in a row
_LONGEST_WAIT: Final = 1.0


class FetchResponse(NamedTuple):
    """The response to one fetch request."""

    parts: list[PartitionResponse]
    throttle: float  # seconds for which the broker throttles this client
    nodes: Mapping[int, Address]  # addresses of the leaders that `parts` name


class FetchSession:
    """The partitions to fetch from a broker, and those that the broker remembers.

    A broker may grant no session, because it is too old or has no free slots. Then each request
    contains all partitions and asks for a session again.
    """

    def __init__(self) -> None:
        self._id = 0
        self._number = 0  # epoch of the next fetch within the session; 0 starts a new session
        self._wanted: dict[TopicPartition, PartitionFetch] = {}  # in the order of the next request
        self._known: dict[
            TopicPartition, PartitionFetch
        ] = {}  # what the broker remembers since the last request
        self._changed: dict[TopicPartition, None] = {}  # partitions in which those two may differ
        self._names: dict[bytes, str] = {}
        self._refused = 0  # refused sessions in a row
        self._max_bytes = 0  # of the last request

    def want(self, partition: TopicPartition, ask: PartitionFetch) -> None:
        """Include a partition in the next request and all later ones.

        It moves to the end of the order, because a broker without a session fills its response in
        order.
        """
        self._wanted.pop(partition, None)
        self._wanted[partition] = ask
        self._changed[partition] = None

    def drop(self, partition: TopicPartition) -> None:
        """Exclude a partition from later requests, if it was included."""
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
        """Return the next fetch request. The caller must send it, or call `reset`."""
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
            # thousands of partitions share one id object
            if ask.topic_id is not last and ask.topic_id is not None:
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
        """Return the partitions to send and those to forget.

        Afterwards `_known` has what the broker remembers after this request.
        """
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
        """Parse the response to the last request.

        Raise an error if the broker refused the whole request, for example because the session is
        unknown. Then call `reset` and send a full request.
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
        """Start a new session after a refusal, and return the seconds to wait before it.

        One refusal is usual after a broker restart. Several in a row are a fault of a broker or a
        proxy, and must not cause a storm of fetches.
        """
        self.reset()
        self._refused += 1
        if self._refused < 2:
            return 0.0
        return float(min(_FIRST_WAIT * 2 ** min(self._refused - 2, 10), _LONGEST_WAIT))

    def reset(self) -> None:
        """Start over: the next request contains all partitions and replaces the session."""
        self._number = 0
        self._known.clear()
        self._names.clear()
