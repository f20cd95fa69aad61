"""Errors of an app's handlers."""

from asyncconsumer.errors.base import ConsumerError


class HandlerFailed(ConsumerError):
    """A handler failed for a record, and no option allows the app to skip the record.

    The exception of the handler is the cause. The record is not committed and is redelivered.
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
            f"handler {self.handler} failed for {self.place}{times}: {self.reason}. The record is "
            "not committed and will be redelivered. To continue without it, set "
            "`dead_letter_topic` or `on_error='skip'`"
        )


class HandlerTimedOut(ConsumerError):
    """A handler took longer than its ``handler_timeout_ms``."""

    retriable = True

    def __init__(self, handler: str, timeout_ms: int) -> None:
        super().__init__(handler, timeout_ms)
        self.handler = handler
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return (
            f"handler {self.handler} took more than {self.timeout_ms} ms. If it needs longer, "
            "raise `handler_timeout_ms`"
        )


class HandlerCancelled(ConsumerError):
    """A handler raised CancelledError although the app did not cancel it."""

    retriable = True

    def __init__(self, handler: str) -> None:
        super().__init__(handler)
        self.handler = handler

    def __str__(self) -> str:
        return (
            f"handler {self.handler} raised CancelledError, but the app did not cancel it. Catch "
            "CancelledError of the tasks and futures that the handler awaits"
        )
