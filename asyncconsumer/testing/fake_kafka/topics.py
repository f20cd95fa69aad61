"""The topics of a fake cluster, with the methods that change topics, records and leaders."""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Final
from uuid import UUID

from asyncconsumer.errors import ConfigError
from asyncconsumer.testing.fake_kafka.log import (
    Aborted,
    Batch,
    RecordPayload,
    Writer,
    make_batch,
    make_marker,
)
from asyncconsumer.testing.fake_kafka.state import Partition, Topic, View
from asyncconsumer.types import TopicPartition

_FIRST_MOMENT: Final = 1_700_000_000_000  # in ms: the time of day at virtual time 0


class Topics:
    """The topics, logs and leaders of a cluster. Each method takes effect at once."""

    def __init__(self, randomness: Random, view: View) -> None:
        self.view = view
        self.randomness = randomness
        self._made: dict[str, int] = {}  # incarnations, by topic name

    # --- topics ----------------------------------------------------------------------------------

    def add_topic(self, name: str, partitions: int = 1, *, replicas: int | None = None) -> UUID:
        """Create a topic, with the leaders spread over the brokers. Return its id.

        By default all brokers are replicas.
        """
        if name in self.view.topics:
            raise ConfigError(f"the fake cluster has a topic {name!r} already: use another name")
        self._made[name] = self._made.get(name, 0) + 1
        topic_id = UUID(int=self.randomness.getrandbits(128) | 1)
        topic = Topic(name, topic_id, self._made[name], [])
        self.view.add(topic)
        self._grow(topic, partitions, replicas)
        return topic_id

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of partitions of a topic to `total`."""
        topic = self.view.topic(name)
        if total <= len(topic.partitions):
            raise ConfigError(
                f"{name} has {len(topic.partitions)} partitions: `total` must be more, got {total}"
            )
        self._grow(topic, total, len(topic.partitions[0].replicas))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        topic = self.view.remove(name)
        for partition in topic.partitions:
            partition.changed()

    def recreate_topic(self, name: str, partitions: int | None = None) -> UUID:
        """Delete a topic and create it again with another id. Return the new id.

        No request is handled between the deletion and the creation.
        """
        topic = self.view.remove(name)
        replicas = len(topic.partitions[0].replicas)
        topic_id = self.add_topic(name, partitions or len(topic.partitions), replicas=replicas)
        for partition in topic.partitions:
            partition.changed()
        return topic_id

    def _grow(self, topic: Topic, total: int, replicas: int | None) -> None:
        nodes = sorted(self.view.endpoints)
        if not nodes:
            raise ConfigError(
                f"topic {topic.name!r} gets no partitions: no broker of the fake cluster is alive"
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
        """Append `count` records in `batches` batches, and return their offsets.

        The values are `RecordPayload`s with at least `size` bytes. `gap` offsets before the records
        are left out, as if compaction had removed them. With `replicated=False` the records are
        after the high watermark and cannot be read. If the partition has no leader, write nothing.
        """
        partition_state, writer = self._writer(topic, partition)
        log = partition_state.log
        if partition_state.leader < 0:
            return range(log.end, log.end)
        first = log.end + gap
        for number in range(batches):
            share = count * (number + 1) // batches - count * number // batches
            if share:
                base = max(log.end, first)
                log.add(make_batch(writer, base, share, self.now_ms(), size))
        if replicated:
            log.high = log.end
            partition_state.changed()
        return range(first, log.end)

    def append_transaction(
        self, topic: str, partition: int, count: int, *, producer: int = 1, commit: bool
    ) -> range:
        """Append a transaction of `count` records, and its control record.

        Return the offsets of the records. `producer` is the producer id.
        """
        partition_state, writer = self._writer(topic, partition)
        log, writer = partition_state.log, writer._replace(producer=producer)
        first = log.end
        log.add(make_batch(writer, first, count, self.now_ms()))
        if not commit:
            log.aborted.append(Aborted(producer, first, log.end))
        log.add(make_marker(writer, log.end, self.now_ms(), commit=commit))
        log.high = log.end
        partition_state.changed()
        return range(first, log.end - 1)

    def append_batch(self, tp: TopicPartition, batch: Batch) -> int:
        """Append an encoded batch, replicate it, and return its first offset.

        The leader assigns the offset. The offset in `batch` is ignored.
        """
        partition = self.view.partition(tp)
        base = partition.log.end
        partition.log.add(batch.moved(base, partition.epoch))
        self.replicate(tp)
        return base

    def replicate(self, tp: TopicPartition) -> None:
        """Let all replicas catch up with the leader, so that all records can be read."""
        partition = self.view.partition(tp)
        partition.log.high = partition.log.end
        partition.changed()

    def truncate(self, tp: TopicPartition, count: int) -> int:
        """Remove the batches of the last `count` records, and return the new log end offset.

        The partition gets a new leader epoch, as after an unclean election.
        """
        partition = self.view.partition(tp)
        partition.log.truncate(partition.log.end - count)
        partition.led_by(partition.leader)
        partition.changed()
        return partition.log.end

    def advance_log_start(self, tp: TopicPartition, offset: int | None = None) -> int:
        """Delete the records before an offset, or all records. Return the log start offset."""
        partition = self.view.partition(tp)
        partition.log.delete_before(partition.log.high if offset is None else offset)
        partition.changed()
        return partition.log.start

    def records(self, tp: TopicPartition) -> list[RecordPayload]:
        """Return the readable records, including those of aborted transactions."""
        log, topic = self.view.partition(tp).log, self.view.topic(tp.topic)
        return [
            RecordPayload(*tp, offset, batch.epoch, topic.incarnation)
            for batch in log.batches
            for offset in range(max(batch.base, log.start), min(batch.next, log.high))
            if not batch.control
        ]

    def end(self, tp: TopicPartition) -> int:
        """Return the high watermark: the offset after the last record that can be read."""
        return self.view.partition(tp).log.high

    def _writer(self, name: str, number: int) -> tuple[Partition, Writer]:
        partition = self.view.partition(TopicPartition(name, number))
        incarnation = self.view.topic(name).incarnation
        return partition, Writer(name, number, partition.epoch, incarnation)

    def now_ms(self) -> int:
        """Return the time of day in milliseconds, which follows the clock of the loop."""
        return _FIRST_MOMENT + int(asyncio.get_running_loop().time() * 1000)

    # --- leaders ---------------------------------------------------------------------------------

    def leader(self, tp: TopicPartition) -> int:
        """Return the id of the leader of a partition, or -1."""
        return self.view.partition(tp).leader

    def move_leader(self, tp: TopicPartition, node_id: int, *, lose: int = 0) -> int:
        """Make a broker the leader of a partition. Return the log end offset.

        The `lose` newest records are lost, as after an unclean election.
        """
        partition = self.view.partition(tp)
        if node_id not in self.view.endpoints:
            raise ConfigError(f"node {node_id} cannot lead {tp}: it is not alive in this cluster")
        partition.log.truncate(partition.log.end - lose)
        if node_id not in partition.replicas:
            partition.replicas += (node_id,)
        if node_id not in partition.isr:
            partition.isr = (*partition.isr, node_id)
        partition.led_by(node_id)
        partition.changed()
        return partition.log.end

    def lose_replica(self, node_id: int) -> None:
        """Remove a dead broker from the in-sync replicas.

        An in-sync replica becomes the leader of each partition that the broker led. If none is
        left, the partition has no leader.
        """
        self.view.endpoints.pop(node_id, None)
        for partition in self._partitions():
            if node_id not in partition.isr:
                continue
            others = tuple(node for node in partition.isr if node != node_id)
            alive = [node for node in others if node in self.view.endpoints]
            partition.isr = others or partition.isr
            if partition.leader == node_id:
                partition.led_by(self.randomness.choice(alive) if alive else -1)
                partition.changed()

    def regain_replica(self, node_id: int) -> None:
        """Add a restarted broker to the in-sync replicas of its partitions.

        It becomes the leader of partitions that have none.
        """
        for partition in self._partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader in (-1, node_id) and node_id in partition.isr:
                partition.led_by(node_id)
            if partition.leader >= 0:
                alive = (node for node in partition.replicas if node in self.view.endpoints)
                partition.isr = tuple(alive)
            partition.changed()

    def _partitions(self) -> Iterable[Partition]:
        for topic in self.view.topics.values():
            yield from topic.partitions
