"""The topics of a fake cluster, and what a schedule does to them and to their leaders."""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Final
from uuid import UUID

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.fake_kafka.log import Aborted, Told, Writer, make_batch, make_marker
from asyncconsumer.testing.fake_kafka.state import Partition, Topic, View
from asyncconsumer.types import TopicPartition

_FIRST_MOMENT: Final = 1_700_000_000_000  # in ms: when a simulation's clock is at 0


class Topics:
    """Topics, their logs and their leaders. Every verb takes effect at once."""

    def __init__(self, randomness: Random, view: View) -> None:
        self.view = view
        self.randomness = randomness
        self._made: dict[str, int] = {}  # how often, by name

    # --- topics ----------------------------------------------------------------------------------

    def add_topic(self, name: str, partitions: int = 1, *, replicas: int | None = None) -> UUID:
        """Make a topic; leaders are spread, each partition is on `replicas` brokers or on all."""
        if name in self.view.topics:
            raise ConfigError(f"topic {name!r} is in the fake cluster already")
        self._made[name] = self._made.get(name, 0) + 1
        topic_id = UUID(int=self.randomness.getrandbits(128) | 1)
        topic = Topic(name, topic_id, self._made[name], [])
        self.view.add(topic)
        self._grow(topic, partitions, replicas)
        return topic_id

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions."""
        topic = self.view.topic(name)
        if total <= len(topic.partitions):
            raise ConfigError(f"{name} has {len(topic.partitions)} partitions: {total} are no more")
        self._grow(topic, total, len(topic.partitions[0].replicas))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, records and all."""
        topic = self.view.remove(name)
        for partition in topic.partitions:
            partition.changed()

    def recreate_topic(self, name: str, partitions: int | None = None) -> UUID:
        """Delete a topic and make it anew, with another id, between two requests."""
        topic = self.view.remove(name)
        replicas = len(topic.partitions[0].replicas)
        topic_id = self.add_topic(name, partitions or len(topic.partitions), replicas=replicas)
        for partition in topic.partitions:
            partition.changed()
        return topic_id

    def _grow(self, topic: Topic, total: int, replicas: int | None) -> None:
        nodes = sorted(self.view.places)
        if not nodes:
            raise ConfigError(
                f"{topic.name} needs a broker to be on: none is alive in this cluster"
            )
        count = min(replicas or len(nodes), len(nodes))
        for number in range(len(topic.partitions), total):
            on = tuple(nodes[(number + step) % len(nodes)] for step in range(count))
            partition = Partition(number, on[0], on, on)
            partition.log.begin_epoch(0)
            topic.partitions.append(partition)

    # --- records ---------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int,
        count: int,
        *,
        batches: int = 1,
        size: int = 0,
        gap: int = 0,
        replicated: bool = True,
    ) -> range:
        """Write records in so many batches; returns their offsets, and their values tell `Told`.

        `size` is the least of a value, `gap` what compaction left out before them. What is not
        `replicated` lies above the high watermark, and nobody may read it yet. Without a leader
        nothing can be written.
        """
        found, writer = self._writer(topic, partition)
        log = found.log
        if found.leader < 0:
            return range(log.end, log.end)
        first = log.end + gap
        for number in range(batches):
            share = count * (number + 1) // batches - count * number // batches
            if share:
                base = max(log.end, first)
                log.add(make_batch(writer, base, share, self._moment(), size))
        if replicated:
            log.high = log.end
            found.changed()
        return range(first, log.end)

    def append_transaction(
        self, topic: str, partition: int, count: int, *, producer: int = 1, commit: bool
    ) -> range:
        """Write a whole transaction, with its marker; returns the offsets of its records."""
        found, writer = self._writer(topic, partition)
        log, writer = found.log, writer._replace(producer=producer)
        first = log.end
        log.add(make_batch(writer, first, count, self._moment()))
        if not commit:
            log.aborted.append(Aborted(producer, first, log.end))
        log.add(make_marker(writer, log.end, self._moment(), commit=commit))
        log.high = log.end
        found.changed()
        return range(first, log.end - 1)

    def replicate(self, at: TopicPartition) -> None:
        """Have all replicas catch up: everything written may be read."""
        partition = self.view.partition(at)
        partition.log.high = partition.log.end
        partition.changed()

    def truncate(self, at: TopicPartition, count: int) -> int:
        """Lose the last `count` records, and the batches that they are in; returns the new end.

        As after the election of a replica that lagged behind, so there is a new epoch.
        """
        partition = self.view.partition(at)
        partition.log.truncate(partition.log.end - count)
        partition.led_by(partition.leader)
        partition.changed()
        return partition.log.end

    def advance_log_start(self, at: TopicPartition, offset: int | None = None) -> int:
        """Delete the records before an offset, or all there are; returns where the log starts."""
        partition = self.view.partition(at)
        partition.log.delete_before(partition.log.high if offset is None else offset)
        partition.changed()
        return partition.log.start

    def records(self, at: TopicPartition) -> list[Told]:
        """The records that there are to read now, those of aborted transactions among them."""
        log, topic = self.view.partition(at).log, self.view.topic(at.topic)
        return [
            Told(*at, offset, batch.epoch, topic.incarnation)
            for batch in log.batches
            for offset in range(max(batch.base, log.start), min(batch.next, log.high))
            if not batch.control
        ]

    def end(self, at: TopicPartition) -> int:
        """The high watermark: the offset up to which there is something to read."""
        return self.view.partition(at).log.high

    def _writer(self, name: str, number: int) -> tuple[Partition, Writer]:
        partition = self.view.partition(TopicPartition(name, number))
        incarnation = self.view.topic(name).incarnation
        return partition, Writer(name, number, partition.epoch, incarnation)

    @staticmethod
    def _moment() -> int:
        return _FIRST_MOMENT + int(asyncio.get_running_loop().time() * 1000)

    # --- leaders ---------------------------------------------------------------------------------

    def leader(self, at: TopicPartition) -> int:
        """The node that leads a partition; -1 if none does."""
        return self.view.partition(at).leader

    def move_leader(self, at: TopicPartition, node_id: int, *, lose: int = 0) -> int:
        """Elect a leader, of an unclean election if records are lost; returns the log's end."""
        partition = self.view.partition(at)
        if node_id not in self.view.places:
            raise ConfigError(f"node {node_id} cannot lead {at}: it is not alive in this cluster")
        partition.log.truncate(partition.log.end - lose)
        if node_id not in partition.replicas:
            partition.replicas += (node_id,)
        if node_id not in partition.isr:
            partition.isr = (*partition.isr, node_id)
        partition.led_by(node_id)
        partition.changed()
        return partition.log.end

    def lose_replica(self, node_id: int) -> None:
        """A broker is gone: others in sync lead what it led, or nobody does."""
        self.view.places.pop(node_id, None)
        for partition in self._partitions():
            if node_id not in partition.isr:
                continue
            others = tuple(node for node in partition.isr if node != node_id)
            alive = [node for node in others if node in self.view.places]
            partition.isr = others or partition.isr
            if partition.leader == node_id:
                partition.led_by(self.randomness.choice(alive) if alive else -1)
                partition.changed()

    def regain_replica(self, node_id: int) -> None:
        """A broker is back, leads what nobody else in sync does, and catches up with the rest."""
        for partition in self._partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader in (-1, node_id) and node_id in partition.isr:
                partition.led_by(node_id)
            if partition.leader >= 0:
                alive = (node for node in partition.replicas if node in self.view.places)
                partition.isr = tuple(alive)
            partition.changed()

    def _partitions(self) -> Iterable[Partition]:
        for topic in self.view.topics.values():
            yield from topic.partitions
