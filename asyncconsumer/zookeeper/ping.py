"""The timer that decides when to ping a server, and when to close a silent connection. No I/O."""

import enum
from math import inf


class PingAction(enum.Enum):
    """An action that the timer requests of its connection."""

    NOTHING = "wait"
    PING = "send a ping"
    SILENCE = "the server sends nothing"
    UNANSWERED = "the server does not answer a request"


class PingTimer:
    """The timer of one connection, in thirds of the session timeout.

    A ping is due after a third without a request. After two thirds without data from the server,
    the connection is closed. The last third remains to find another server.
    """

    def __init__(self, timeout: float, opened: float, now: float) -> None:
        self.third = timeout / 3
        self.sent = self.received = now
        self.last_answer = opened

    def on_send(self, now: float) -> float:
        """Record that a request is sent at the loop time `now`. Return `now`."""
        self.sent = now
        return now

    def on_event(self, now: float) -> None:
        """Record that data that answers no request arrived at the loop time `now`."""
        self.received = now

    def on_answer(self, sent: float, now: float) -> None:
        """Record that the response to a request arrived.

        The request was sent at the loop time `sent`, and the response was read at `now`. Only the
        time `sent` counts for the session, because the server prolonged it then or later. While
        this process was stopped, the response may have waited until the session had expired.
        """
        self.received = now
        self.last_answer = max(self.last_answer, sent)

    def due(self, oldest: float, now: float) -> PingAction:
        """Return the action that is due at the loop time `now`.

        `oldest` is the send time of the oldest pending request, or inf if none is pending.
        """
        if now >= self.received + 2 * self.third:
            return PingAction.SILENCE
        if now >= oldest + 3 * self.third:
            return PingAction.UNANSWERED
        return PingAction.PING if now >= self.sent + self.third else PingAction.NOTHING

    def next_due(self, oldest: float = inf) -> float:
        """Return the loop time at which to call `due` again.

        `oldest` is the send time of the oldest pending request, or inf if none is pending.
        """
        return min(self.sent + self.third, self.received + 2 * self.third, oldest + 3 * self.third)
