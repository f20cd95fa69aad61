"""The producer that a Spark Python process keeps between tasks, and the writing of one task."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from asyncconsumer.aio.own_task import OwnTask
from asyncconsumer.producer.bulk import BulkDelivery, send_bulk
from asyncconsumer.producer.producer import Producer
from asyncconsumer.spark.options.sink import SinkOptions, producer_config
from asyncconsumer.spark.source.worker_loop import worker_loop
from asyncconsumer.spark.writer.columns import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa


class WorkerProducer:
    """A producer that stays open after the task that opened it."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.producer: Producer[bytes, bytes] = Producer(config=producer_config(kafka))
        self._task = OwnTask(self.producer, "kafka producer")

    async def open(self) -> None:
        """Open the producer, which stays open until `close` is called."""
        await self._task.open()

    async def close(self) -> None:
        """Close the producer. Records that are not written by then are given up."""
        await self._task.close()


def write_batches(
    batches: "Iterator[pa.RecordBatch]", columns: RecordColumns, options: SinkOptions
) -> None:
    """Write the rows of a Spark task to Kafka, and return when all of them are written.

    Raise the error of the first record that failed. The producer is then replaced, because its
    remaining records would delay the next task.
    """
    loop = worker_loop()
    open_producer = loop.resource(WorkerProducer, options.kafka)
    try:
        sent = BulkDelivery()
        for batch in loop.receive(batches):
            sent = loop.run(_send(open_producer.producer, columns, batch, after=sent))
        loop.run(_finish(open_producer.producer, sent))
    except BaseException:
        loop.discard(open_producer)
        raise


async def _send(
    producer: Producer[bytes, bytes],
    columns: RecordColumns,
    batch: "pa.RecordBatch",
    *,
    after: BulkDelivery,
) -> BulkDelivery:
    """Start the delivery of the rows of a batch, and return that delivery.

    Before returning, wait until `after`, the delivery of the previous batch, is complete. So at
    most two batches are in flight, and the network is busy while Spark makes the next batch.
    """
    sent = await send_bulk(producer, columns.records(batch))
    await after.wait()
    return sent


async def _finish(producer: Producer[bytes, bytes], sent: BulkDelivery) -> None:
    await producer.flush()
    await sent.wait()
