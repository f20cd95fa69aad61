"""What can go wrong with handlers."""

from asyncconsumer.errors.base import ConsumerError


class HandlerFailed(ConsumerError):
    """A handler could not deal with a record, and nothing says to go on without it.

    What it raised is the cause. The record is not committed: it comes again.
    """

    def __init__(self, handler: str, place: str, attempts: int, reason: str) -> None:
        super().__init__(handler, place, attempts, reason)
        self.handler = handler
        self.place = place
        self.attempts = attempts
        self.reason = reason

    def __str__(self) -> str:
        times = "" if self.attempts == 1 else f", {self.attempts} times"
        return (
            f"handler {self.handler} failed with {self.place}{times}: {self.reason}. It is not "
            "committed and comes again; a dead_letter_topic, or on_error='skip', goes on without it"
        )


class HandlerTimedOut(ConsumerError):
    """A handler took longer than its handler_timeout_ms."""

    retriable = True

    def __init__(self, handler: str, milliseconds: int) -> None:
        super().__init__(handler, milliseconds)
        self.handler = handler
        self.milliseconds = milliseconds

    def __str__(self) -> str:
        return f"handler {self.handler} took more than {self.milliseconds} ms"


class HandlerCancelled(ConsumerError):
    """A handler was cancelled, and not by us: something that it waited for was."""

    retriable = True

    def __init__(self, handler: str) -> None:
        super().__init__(handler)
        self.handler = handler

    def __str__(self) -> str:
        return f"handler {self.handler} ended as cancelled, though nobody cancelled it"
