"""Fetch sessions (KIP-227), in which requests and responses have only changed partitions."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from asyncconsumer.config import FetchConfig
from asyncconsumer.errors import BrokerError
from asyncconsumer.fetch.fetch_request import (
    PartitionFetch,
    PartitionResponse,
    build_request,
    check_size,
    parse_partition,
    throttle_seconds,
)
from asyncconsumer.net.connection import RawResponse
from asyncconsumer.protocol.messages import FETCH, NO_SESSION, FetchRequest, FetchTopic
from asyncconsumer.records import decoding
from asyncconsumer.types import Address, TopicPartition

_FIRST_WITH_SESSIONS: Final = 7
_MAX_EPOCH: Final = 2**31 - 1
_SPARE_NAMES: Final = 100  # names of topics that are no longer fetched
_MIN_WAIT: Final = 0.05  # seconds, after the second refusal in a row
_MAX_WAIT: Final = 1.0


class FetchResponse(NamedTuple):
    """The parsed response to one fetch request."""

    parts: list[PartitionResponse]
    throttle: float  # seconds for which the broker throttles this client
    nodes: Mapping[int, Address]  # addresses of the leaders that `parts` name


class FetchSession:
    """A fetch session: the partitions to fetch from a broker, and those that it remembers.

    A broker may grant no session, because it is too old or has no free slots. Then each request
    contains all partitions and asks for a session again.
    """

    def __init__(self) -> None:
        self._id = 0
        self._number = 0  # epoch of the next fetch within the session; 0 starts a new session
        # the partitions in the order of the next request
        self._fetches: dict[TopicPartition, PartitionFetch] = {}
        # the partitions that the broker remembers since the last request
        self._remembered: dict[TopicPartition, PartitionFetch] = {}
        self._changed: dict[TopicPartition, None] = {}  # where the two dicts above may differ
        self._topic_names: dict[bytes, str] = {}  # topic names by the bytes of the topic id
        self._refused = 0  # refused sessions in a row
        self._max_bytes = 0  # the byte limit of the last request

    def add(self, tp: TopicPartition, fetch: PartitionFetch) -> None:
        """Include a partition in the next request and all later ones, after all other partitions.

        The order matters if the broker grants no session: it fills its response in this order.
        """
        self._fetches.pop(tp, None)
        self._fetches[tp] = fetch
        self._changed[tp] = None

    def remove(self, tp: TopicPartition) -> None:
        """Exclude a partition from later requests, if it was included."""
        if self._fetches.pop(tp, None) is not None:
            self._changed[tp] = None

    def request(
        self,
        config: FetchConfig,
        versions: Mapping[int, tuple[int, int]],
        *,
        max_wait_ms: int,
        max_bytes: int,
        rack: str,
    ) -> FetchRequest:
        """Return the next Fetch request, and count it as sent.

        A caller that does not send the request must call `reset`. `versions` has the lowest and
        highest version of each request that the broker supports, by API key.
        """
        sent: Mapping[TopicPartition, PartitionFetch]
        forgotten: Mapping[FetchTopic, Sequence[int]] = {}
        if self._number == 0:
            sent, self._remembered = self._fetches, dict(self._fetches)
            self._topic_names.clear()
        else:
            sent, forgotten = self._changes()
        self._changed.clear()
        self._max_bytes = max_bytes
        last = None
        for tp, fetch in sent.items():
            # thousands of partitions share one id object
            if fetch.topic_id is not last and fetch.topic_id is not None:
                last = fetch.topic_id
                self._topic_names[last.bytes] = tp.topic
        if len(self._topic_names) > 2 * len(self._remembered) + _SPARE_NAMES:
            self._drop_unused_names()
        has_sessions = versions.get(FETCH.key, (0, 0))[1] >= _FIRST_WITH_SESSIONS
        return build_request(
            sent,
            config,
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            session=(self._id, self._number) if has_sessions else NO_SESSION,
            forgotten=forgotten,
            rack=rack,
        )

    def _drop_unused_names(self) -> None:
        """Remove the names of topics that no partition of the session belongs to."""
        self._topic_names = {
            fetch.topic_id.bytes: tp.topic
            for tp, fetch in self._remembered.items()
            if fetch.topic_id is not None
        }

    def _changes(self) -> tuple[dict[TopicPartition, PartitionFetch], dict[FetchTopic, list[int]]]:
        """Return the partitions to add to the broker's session, and those to drop from it.

        Afterwards `_remembered` has the partitions that the broker remembers after this request.
        """
        sent: dict[TopicPartition, PartitionFetch] = {}
        forgotten: dict[FetchTopic, list[int]] = {}
        for tp in self._changed:
            now, before = self._fetches.get(tp), self._remembered.get(tp)
            if before is not None and (
                now is None
                or (now.topic_id is not before.topic_id and now.topic_id != before.topic_id)
            ):
                topic = FetchTopic(tp.topic, before.topic_id)
                forgotten.setdefault(topic, []).append(tp.partition)
                del self._remembered[tp]
            if now is not None and now != before:
                sent[tp] = self._remembered[tp] = now
        return sent, forgotten

    def parse_response(self, raw: RawResponse) -> FetchResponse:
        """Parse the response to the last request.

        Raise an error if the broker refused the whole request, for example because the session is
        unknown. The caller must then call `reset` and send a full request.
        """
        response = decoding.fetch_answer(raw.body, raw.version)
        if response.error_code:
            raise BrokerError.from_code(response.error_code, "a fetch")
        check_size(raw, response, self._max_bytes)
        self._refused = 0
        self._id = response.session_id
        self._number = self._number % _MAX_EPOCH + 1 if self._id else 0
        nodes = {
            node_id: address
            for node_id, host, port, _ in response.node_endpoints
            if (address := Address(host or "", port)).is_possible
        }
        parts = [
            parse_partition(raw, part, self._remembered, self._topic_names)
            for part in response.partitions
        ]
        return FetchResponse(parts, throttle_seconds(response), nodes)

    def on_refusal(self) -> float:
        """Start a new session, because the broker refused the last request.

        Return the seconds to wait before the next request: 0 after the first refusal. One refusal
        is usual after a broker restart. Several in a row are a fault of a broker or a proxy, and
        immediate retries would flood it with requests.
        """
        self.reset()
        self._refused += 1
        if self._refused < 2:
            return 0.0
        return float(min(_MIN_WAIT * 2 ** min(self._refused - 2, 10), _MAX_WAIT))

    def reset(self) -> None:
        """Start a new session. The next request contains all partitions."""
        self._number = 0
        self._remembered.clear()
        self._topic_names.clear()
