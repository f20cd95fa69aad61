"""The choice of partitions, as Java's producer chooses them."""

from random import Random
from typing import Final

from asyncconsumer.net.metadata import Metadata, Topic
from asyncconsumer.records.decoding import murmur2

_POSITIVE: Final = 0x7FFFFFFF


class TopicPartitioner:
    """The partitioner of one topic, which chooses a partition for each record.

    The hash of a key selects the partition. Records without a key go to the sticky partition. After
    a batch for it was sent, another partition becomes the sticky one.
    """

    def __init__(self, topic: Topic, metadata: Metadata, randomness: Random) -> None:
        self.topic: Final = topic
        self.numbers: Final = sorted(topic.partitions)
        self._randomness = randomness
        reachable = [
            number
            for number in self.numbers
            if (leader := topic.leader(number)) is not None and leader[0] in metadata.brokers
        ]
        self._candidates = reachable or self.numbers
        self.sticky = randomness.choice(self._candidates)

    def of_key(self, key: bytes) -> int:
        """Return the partition of a key."""
        numbers = self.numbers
        return numbers[(murmur2(key) & _POSITIVE) % len(numbers)]

    def move_on(self) -> int:
        """Choose another sticky partition if the topic has several. Return the sticky partition."""
        others = [number for number in self._candidates if number != self.sticky]
        if others:
            self.sticky = self._randomness.choice(others)
        return self.sticky
