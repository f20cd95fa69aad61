"""What can go wrong on the way from a consumer into a sink."""

from asyncconsumer.errors.base import ConsumerError


class SinkFailed(ConsumerError):
    """A sink could not do what it was asked, however often. What it raised is the cause.

    Nothing that was not written is committed: who feeds next begins there.
    """

    def __init__(self, sink: str, what: str, tries: int, reason: str) -> None:
        super().__init__(sink, what, tries, reason)
        self.sink = sink
        self.what = what
        self.tries = tries
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.sink} failed to {self.what}, {self.tries} times: {self.reason}. Mend the sink "
            "and start again: reading goes on behind what it holds"
        )


class SinkOffsetConflict(ConsumerError):
    """A sink holds more of a partition than there was to read: the log is another one by now."""

    def __init__(self, sink: str, partition: object, recorded: int, found: int) -> None:
        super().__init__(sink, partition, recorded, found)
        self.sink = sink
        self.partition = partition
        self.recorded = recorded
        self.found = found

    def __str__(self) -> str:
        # what begins where the sink ends is told by its topic's id
        follows = self.found == self.recorded
        what = "records of another topic of that name" if follows else f"offset {self.found}"
        perhaps = "" if follows else ", or truncated"
        return (
            f"{self.sink} holds {self.partition} up to offset {self.recorded}, and the log gives "
            f"{what}: the topic was created anew{perhaps}. Feed it into another "
            "place, or by another name: app=... of a DeltaSink; with a write=... function app=... "
            "of the feeder, which its txn_app_id has, and another group as well"
        )


class RecordsDeleted(ConsumerError):
    """Records were deleted from the log before they were fed, by retention or by hand.

    The sink has all up to ``recorded``.
    """

    def __init__(self, sink: str, partition: object, recorded: int) -> None:
        super().__init__(sink, partition, recorded)
        self.sink = sink
        self.partition = partition
        self.recorded = recorded

    def __str__(self) -> str:
        return (
            f"{self.sink} has {self.partition} up to offset {self.recorded}, and what comes next "
            "was deleted from the log before it was fed. Give fail_on_data_loss=False to go on "
            "with the first record that is still there"
        )
