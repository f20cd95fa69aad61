"""The failure policy of a handler: retry, retry topic, dead letter, skip, or stop."""

import logging
from collections import Counter
from random import Random
from typing import Final

from asyncconsumer.aio.log_limit import RateLimitedLogger
from asyncconsumer.consumer.dead_letters import (
    DeadLetterWriter,
    Failure,
    NotADeadLetter,
    original,
)
from asyncconsumer.errors import ConsumerError, DeserializationFailed, HandlerFailed
from asyncconsumer.errors.tracebacks import traceback_text
from asyncconsumer.events import EventBus, RecordAbandoned, Retried
from asyncconsumer.handlers.partition_work import (
    Attempts,
    Item,
    PartitionWork,
    first_of,
    records_of,
)
from asyncconsumer.handlers.queue import WorkQueue
from asyncconsumer.handlers.retry import Retry
from asyncconsumer.handlers.retry_topic import (
    BehindRetry,
    NotDue,
    RetryTopic,
    RetryTopics,
    attempts_of,
)
from asyncconsumer.metrics.recorder import Recorder
from asyncconsumer.records.decoding import Record
from asyncconsumer.types import TopicPartition

_log: Final = logging.getLogger(__name__)
# The wait while a schema registry is unavailable, which is not a failure of the record.
_SECONDS_UNTIL_IT_IS_MENDED: Final = 1.0


class Failures:
    """The failure policy of one handler: retry a failed record, and finally give it up.

    A record that is given up becomes a dead letter, is skipped, or stops the app.
    """

    def __init__(
        self,
        handler: str,
        queue: WorkQueue,
        *,
        retry: Retry | None,
        dead_letters: DeadLetterWriter | None,
        on_error: str,
        group: str,
        randomness: Random,
        events: EventBus,
        recorder: Recorder,
        retry_topics: RetryTopics | None = None,
    ) -> None:
        self.counts: Final[Counter[str]] = Counter()
        self._handler = handler
        self._queue = queue
        self._retry = retry
        self._dead_letters = dead_letters
        self._skips = on_error == "skip"
        self._group = group
        self._randomness = randomness
        self._events = events
        self._recorder = recorder
        self._retry_topics = retry_topics
        self._log = RateLimitedLogger(_log)
        self._tracebacks = RateLimitedLogger(_log)

    async def deal_with(self, work: PartitionWork, item: Item, error: BaseException) -> bool:
        """Handle a failed item (a record or a batch).

        Return True if it is finished, and False if it will be retried. Raise `HandlerFailed` if the
        app must stop.
        """
        first = first_of(item)
        if isinstance(error, NotDue):
            work.attempts[first.offset] = Attempts(attempts_of(first), None)  # to wait only once
            self._queue.retry(work, item, error.seconds)
            return False
        if isinstance(error, BehindRetry):
            await self._park(first, error.topic, error, 0)
            return True
        if isinstance(error, NotADeadLetter):
            await self.give_up(first, error, 1)
            return True
        if isinstance(error, DeserializationFailed) and error.retriable:
            self._log.warning("handler %s waits before it retries: %s", self._handler, error)
            self._queue.retry(work, item, _SECONDS_UNTIL_IT_IS_MENDED)
            return False
        return await self._failed(work, item, error)

    async def _failed(self, work: PartitionWork, item: Item, error: BaseException) -> bool:
        """Retry an item on which a handler or a deserializer failed, or give up its records.

        Return True if the item is finished, and False if this partition will retry it.
        """
        first = first_of(item)
        topics = self._retry_topics
        current = None if topics is None else topics.find(first.topic)
        following = None if topics is None else topics.next_after(first.topic)
        waited = current is not None
        source = original(first) if waited else first
        before = work.attempts.pop(first.offset, None)
        attempts = 1 + (before.times if before else attempts_of(first) if waited else 0)
        self.counts["failed"] += 1
        self._recorder.count_error("handler_errors_total", error, self._handler)
        if (wait := self._wait(attempts, error)) is not None:
            self.counts["retried"] += 1
            if following is not None:
                await self._park(first, following, error, attempts)
                self._tell_of_retry(source, attempts, following.delay, error)
                return True
            if current is not None:
                wait = max(wait, current.delay)
            # A record of the retry topic remains in that topic, so it is no pending retry.
            work.attempts[first.offset] = Attempts(attempts, None if waited else item)
            self._tell_of_retry(source, attempts, wait, error)
            self._queue.retry(work, item, wait)
            return False
        self._log_traceback(first, attempts, error)
        for record in records_of(item):
            if work.ledger.is_unfinished(record.offset):
                await self.give_up(original(record) if waited else record, error, attempts)
        return True

    async def _park(
        self, record: Record, topic: RetryTopic, error: BaseException, attempts: int
    ) -> None:
        """Write a record from the source topic or a retry topic to the retry topic `topic`."""
        assert self._retry_topics is not None
        if self._retry_topics.find(record.topic) is not None:
            record = original(record)
        await topic.park(record, Failure(error, attempts, self._group, self._handler))
        self.counts["parked"] += 1

    def _wait(self, attempts: int, error: BaseException) -> float | None:
        if isinstance(error, DeserializationFailed):
            return None  # a retry would fail in the same way
        if self._retry is None:
            return None
        return self._retry.wait(attempts, error, self._randomness)

    async def give_up(self, record: Record, error: BaseException, attempts: int) -> None:
        """Write a dead letter for a record, skip the record, or raise `HandlerFailed`."""
        if self._dead_letters is not None:
            failure = Failure(error, attempts, self._group, self._handler)
            await self._dead_letters.write(record, failure)
            self.counts["dead letters"] += 1
            self._tell_of_end(record, attempts, "dead_letter", error)
            return
        if not self._skips:
            place = place_of(record)
            raise HandlerFailed(self._handler, place, attempts, kind_of(error)) from error
        self.counts["skipped"] += 1
        self._tell_of_end(record, attempts, "skip", error)

    def _log_traceback(self, first: Record, attempts: int, error: BaseException) -> None:
        """Log the traceback of an item's last attempt.

        The traceback of a deserializer is omitted, because it quotes the record.
        """
        if not isinstance(error, DeserializationFailed):
            self._tracebacks.warning(
                "handler %s failed with %s (attempt %d, the last one)",
                self._handler,
                place_of(first),
                attempts,
                error=error,
                fields={
                    "handler": self._handler,
                    "topic": first.topic,
                    "partition": first.partition,
                    "offset": first.offset,
                    "attempts": attempts,
                },
            )

    def _traceback(self, error: BaseException) -> str:
        """Return the traceback for an event, or "" if no event stream would get it."""
        if isinstance(error, DeserializationFailed) or not self._events.has_listeners:
            return ""
        return traceback_text(error, messages=False)

    def _tell_of_retry(
        self, record: Record, attempts: int, seconds: float, error: BaseException
    ) -> None:
        tp, handler = TopicPartition(record.topic, record.partition), self._handler
        trace = self._traceback(error)
        self._events.publish(
            Retried(tp, record.offset, handler, attempts, seconds, kind_of(error), trace)
        )

    def _tell_of_end(
        self, record: Record, attempts: int, policy: str, error: BaseException
    ) -> None:
        tp, handler = TopicPartition(record.topic, record.partition), self._handler
        self._events.publish(
            RecordAbandoned(
                tp,
                record.offset,
                handler,
                attempts,
                policy,
                kind_of(error),
                self._traceback(error),
            )
        )

    def skip_corrupt(self, partition: TopicPartition) -> bool:
        """Return whether to skip corrupt records of a partition. If so, count and log them.

        They cannot become dead letters, because they cannot be decoded.
        """
        if self._skips:
            self.counts["skipped"] += 1
            self._log.warning("handler %s skips corrupt records of %s", self._handler, partition)
        return self._skips


def kind_of(error: BaseException) -> str:
    """Return an error as text, for logs and events.

    For an exception of a handler, the text is only its type, because its message may quote the
    record.
    """
    return str(error) if isinstance(error, ConsumerError) else type(error).__name__


def place_of(record: Record) -> str:
    """Return topic, partition and offset of a record as a text, for error messages."""
    return f"{record.topic}[{record.partition}]@{record.offset}"
