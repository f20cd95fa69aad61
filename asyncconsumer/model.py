"""The small values that every layer speaks of."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic. Equal to, and hashed like, aiokafka's own."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
