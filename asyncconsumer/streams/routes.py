"""Which stream gets which partition."""

from collections.abc import Mapping

from asyncconsumer.model import TopicPartition
from asyncconsumer.streams.stream import Stream


class Routes:
    """Which stream reads which topic: each of a static subscription has its own, a filter's all."""

    def __init__(self, streams: Mapping[str, list[Stream]] | list[Stream]) -> None:
        self._streams = streams

    def of(self, partition: TopicPartition, number: int) -> Stream:
        """The stream of that number that reads a partition."""
        streams = self._streams
        of_topic = streams if isinstance(streams, list) else streams[partition.topic]
        return of_topic[number]

    def all(self) -> list[Stream]:
        """All there are."""
        streams = self._streams
        if isinstance(streams, list):
            return streams
        return [stream for of_topic in streams.values() for stream in of_topic]
