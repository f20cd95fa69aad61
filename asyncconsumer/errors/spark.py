"""What can be wrong with what Spark asks for."""

from asyncconsumer.errors.base import ConsumerError


class DataLoss(ConsumerError):
    """Records that a Spark query was to read are not there any more.

    ``reason`` is the name that Spark's own Kafka source has for it, `details` says what is gone.
    """

    def __init__(self, reason: str, details: str) -> None:
        super().__init__(reason, details)
        self.reason = reason
        self.details = details

    def __str__(self) -> str:
        return (
            f"[{self.reason}] {self.details}. Some data may have been lost: it was aged out by "
            "Kafka, or the topic was deleted before all of it was read. If the query is to go on "
            'with what is left, set the option failOnDataLoss to "false"'
        )


class BadValue(ConsumerError):
    """A record's value is not what `value_format` says, and the mode is FAILFAST."""

    def __init__(self, place: str, value_format: str, reason: str) -> None:
        super().__init__(place, value_format, reason)
        self.place = place
        self.value_format = value_format
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the value of {self.place} is not the {self.value_format} that the schema says: "
            f"{self.reason}. To read on, set mode to PERMISSIVE or DROPMALFORMED"
        )
