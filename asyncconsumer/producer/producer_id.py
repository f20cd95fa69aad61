"""Producer ids, with which brokers recognize repeated batches."""

from asyncconsumer.errors import BrokerError, ClusterAccessDenied, ConsumerError, UnsupportedBroker
from asyncconsumer.net.cluster import Cluster
from asyncconsumer.producer.partition_queue import NOT_IDEMPOTENT
from asyncconsumer.protocol.produce import InitProducerIdRequest
from asyncconsumer.records.batch_encoder import BatchProducer


class ProducerIds:
    """The producer ids of one producer. All partitions use the latest id for new batches."""

    def __init__(self, cluster: Cluster) -> None:
        self.latest: BatchProducer | None = None
        self.pending = False
        self.last_error: ConsumerError | None = None  # the error of the last request for an id
        self._cluster = cluster

    async def request(self) -> BatchProducer:
        """Request a producer id with InitProducerId from any broker, and return it as the latest.

        If brokers do not support the request, return an id without idempotence. A record whose
        response is lost may then be written twice.
        """
        try:
            response = await self._cluster.ask_any(InitProducerIdRequest())
        except UnsupportedBroker:
            self.latest = NOT_IDEMPOTENT
            return NOT_IDEMPOTENT
        row = response.to_object()
        if code := row["error_code"]:
            error = BrokerError.from_code(code, "a producer id")
            # brokers before Kafka 2.8 require the IdempotentWrite permission
            if not isinstance(error, ClusterAccessDenied):
                raise error
            self.latest = NOT_IDEMPOTENT
        else:
            self.latest = BatchProducer(row["producer_id"], row["producer_epoch"], 0)
        return self.latest
