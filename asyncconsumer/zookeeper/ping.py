"""The timer that decides when to ping a server, and when to close a silent connection. No I/O."""

import enum
from math import inf


class PingAction(enum.Enum):
    """The action that a connection has to perform, or NOTHING. Two of them end the connection."""

    NOTHING = "wait"
    PING = "send a ping"
    SILENCE = "the server sends nothing"
    UNANSWERED = "the server does not answer a request"


class PingTimer:
    """The timer of one connection. It does no I/O.

    A ping is due if no request was sent for a third of the session timeout. The connection is
    closed if the server sends nothing for two thirds, because the last third is needed to find
    another server. It is also closed if a request is not answered within the whole session timeout.
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
        """Record that a watch event, or other data that answers no request, arrived at `now`.

        `now` is the time of the loop.
        """
        self.received = now

    def on_answer(self, sent: float, now: float) -> None:
        """Record that the response to a request arrived.

        The request was sent at the loop time `sent`, and the response was read at `now`. The server
        prolonged the session between these times, so only `sent` is a safe value. If this process
        was stopped, it may read the response after the session has expired.
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
