"""The timer for pings and for the detection of dead servers. No I/O."""

import enum
from math import inf


class PingAction(enum.Enum):
    """The next action of a connection."""

    NOTHING = "wait"
    PING = "send a ping"
    SILENCE = "the server sends nothing"
    UNANSWERED = "the server does not answer a request"


class PingTimer:
    """The timer of one connection, in thirds of the session timeout.

    A ping is due after a third without a request. After two thirds without data from the server the
    connection is given up; the last third remains to find another server.
    """

    def __init__(self, timeout: float, opened: float, now: float) -> None:
        self.third = timeout / 3
        self.sent = self.received = now
        self.last_answer = opened

    def on_send(self, now: float) -> float:
        """Note that a request was sent at `now`."""
        self.sent = now
        return now

    def on_event(self, now: float) -> None:
        """Note that the server sent an event at `now`."""
        self.received = now

    def on_answer(self, sent: float, now: float) -> None:
        """Note that the request sent at `sent` was answered.

        The server certainly prolonged the session only at `sent` or later. The answer may have
        been unread in a stopped process while the session expired, so `now` is not used for this.
        """
        self.received = now
        self.last_answer = max(self.last_answer, sent)

    def due(self, oldest: float, now: float) -> PingAction:
        """Return the action; `oldest` is the time of the oldest pending request, or inf."""
        if now >= self.received + 2 * self.third:
            return PingAction.SILENCE
        if now >= oldest + 3 * self.third:
            return PingAction.UNANSWERED
        return PingAction.PING if now >= self.sent + self.third else PingAction.NOTHING

    def next_due(self, oldest: float = inf) -> float:
        """Return the time of the next check."""
        return min(self.sent + self.third, self.received + 2 * self.third, oldest + 3 * self.third)
