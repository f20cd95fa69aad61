"""The methods of a consumer for events, counts, stalls and progress."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from asyncconsumer.aio.scope import Scope
from asyncconsumer.events import EventStream, Stalled
from asyncconsumer.fetch.manager import FetchManager, Progress
from asyncconsumer.types import TopicPartition


class MonitoringOperations(ABC):
    """A base class of `Consumer` with methods that report events and the progress of fetches."""

    _scope: Scope

    @abstractmethod
    def _fetch_manager(self) -> FetchManager:
        """Return the fetch manager of the consumer, which must be open."""

    def events(self) -> EventStream:
        """Return an iterator over future events, such as rebalances, skipped offsets and stalls."""
        self._scope.check_open()
        return self._fetch_manager().events.listen()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of events so far, by event name.

        ``dropped commits`` counts offsets that were not committed, because their partition was not
        assigned any more.
        """
        self._scope.check_open()
        return self._fetch_manager().events.counts

    def stalled(self) -> Mapping[TopicPartition, Stalled]:
        """Return the assigned partitions that should make progress and do not, with reasons."""
        self._scope.check_open()
        return self._fetch_manager().stalled()

    def progress(self) -> Mapping[TopicPartition, Progress]:
        """Return the fetch position, log end, broker and last fetch of each assigned partition."""
        self._scope.check_open()
        return self._fetch_manager().progress()
