"""Errors of Spark queries and of the feeder."""

from asyncconsumer.errors.base import ConsumerError


class DataLoss(ConsumerError):
    """Records that a Spark query has to read are no longer in the log.

    ``reason`` is the error class that Spark's own Kafka source has for this case. ``details`` names
    the records.
    """

    def __init__(self, reason: str, details: str) -> None:
        super().__init__(reason, details)
        self.reason = reason
        self.details = details

    def __str__(self) -> str:
        return (
            f"[{self.reason}] {self.details}. Some data may have been lost, because retention "
            "deleted it or the topic was deleted before the query read it. To continue with the "
            'remaining records, set the option `failOnDataLoss` to "false"'
        )


class BadValue(ConsumerError):
    """The value of a record does not match the schema, and the mode is FAILFAST."""

    def __init__(self, place: str, value_format: str, reason: str) -> None:
        super().__init__(place, value_format, reason)
        self.place = place
        self.value_format = value_format
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the value of {self.place} is not the {self.value_format} of the schema: "
            f"{self.reason}. To skip such records, set `mode` to PERMISSIVE or DROPMALFORMED"
        )


class MalformedTimestamp(ConsumerError):
    """The timestamp of a record is outside the range of Spark's timestamps.

    Producers cause this if they send microseconds or nanoseconds, because Kafka's timestamps are
    milliseconds.
    """

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place

    def __str__(self) -> str:
        return (
            f"[KAFKA_MALFORMED_RECORD_TIMESTAMP] the timestamp of {self.place} does not fit into "
            "Spark's timestamps. Kafka's timestamps are milliseconds: check that the producer does "
            "not send microseconds or nanoseconds. To read the other columns, select them without "
            "`timestamp`"
        )


class UnwritableRow(ConsumerError):
    """A row of a Spark query cannot be written to Kafka, for example because its topic is null.

    ``reason`` is worded as in Spark's own sink.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SinkFailed(ConsumerError):
    """A sink failed at every attempt. The exception of the sink is the cause.

    Only records that the sink has written are committed. The next feeder starts after those.
    """

    def __init__(self, sink: str, operation: str, attempts: int, reason: str) -> None:
        super().__init__(sink, operation, attempts, reason)
        self.sink = sink
        self.operation = operation
        self.attempts = attempts
        self.reason = reason

    def __str__(self) -> str:
        times = "time" if self.attempts == 1 else "times"
        return (
            f"{self.sink} failed to {self.operation}, {self.attempts} {times}: {self.reason}. "
            "Repair the sink and restart the feeder, which continues after the records written"
        )


class SinkOffsetConflict(ConsumerError):
    """A sink has records up to a higher offset than the partition's log has.

    The topic was re-created or its log truncated. ``recorded`` is the offset after the sink's
    records. ``log_offset`` is the offset that was read.
    """

    def __init__(self, sink: str, partition: object, recorded: int, log_offset: int) -> None:
        super().__init__(sink, partition, recorded, log_offset)
        self.sink = sink
        self.partition = partition
        self.recorded = recorded
        self.log_offset = log_offset

    def __str__(self) -> str:
        # equal offsets: only the topic id shows that the log is another one
        same_offset = self.log_offset == self.recorded
        content = "another topic of that name" if same_offset else f"offset {self.log_offset}"
        truncated = "" if same_offset else " or truncated"
        return (
            f"{self.sink} has {self.partition} up to offset {self.recorded}, but the log continues "
            f"with {content}: the topic was re-created{truncated}. Write to a new sink, or set a "
            "new `app` on the DeltaSink or IcebergSink. For a `write` function, set a new `app` on "
            "the feeder and a new `group_id`"
        )


class RecordsDeleted(ConsumerError):
    """Records were deleted from the log before the feeder read them.

    The sink has the records before offset ``recorded``.
    """

    def __init__(self, sink: str, partition: object, recorded: int) -> None:
        super().__init__(sink, partition, recorded)
        self.sink = sink
        self.partition = partition
        self.recorded = recorded

    def __str__(self) -> str:
        return (
            f"{self.sink} has {self.partition} up to offset {self.recorded}, but the records after "
            "it were deleted from the log before they were read. Set `fail_on_data_loss=False` to "
            "continue with the first record that is still in the log"
        )
