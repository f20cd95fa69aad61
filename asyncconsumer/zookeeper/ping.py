"""When to give a sign of life, and when to take a server for dead. No I/O."""

import enum
from math import inf


class PingAction(enum.Enum):
    """What a connection should do now."""

    NOTHING = "wait"
    PING = "give a sign of life"
    SILENCE = "the server says nothing"
    UNANSWERED = "the server leaves a request unanswered"


class PingTimer:
    """The times of one connection, in thirds of the session's timeout.

    A ping goes out after a third without a request. After two thirds without a word the server is
    given up: the last third is left to find another one.
    """

    def __init__(self, timeout: float, opened: float, now: float) -> None:
        self.third = timeout / 3
        self.sent = self.heard = now
        self.last_answer = opened

    def spoke(self, now: float) -> float:
        """We sent something."""
        self.sent = now
        return now

    def listened(self, now: float) -> None:
        """The server said something unasked."""
        self.heard = now

    def answered(self, sent: float, now: float) -> None:
        """The request that was sent then has its answer.

        Only then, and not before that moment, the server certainly prolonged our session. The
        answer itself may have lain unread in a stopped process while the session ran out.
        """
        self.heard = now
        self.last_answer = max(self.last_answer, sent)

    def due(self, oldest: float, now: float) -> PingAction:
        """What to do; `oldest` is when the request was sent that waits longest, or inf."""
        if now >= self.heard + 2 * self.third:
            return PingAction.SILENCE
        if now >= oldest + 3 * self.third:
            return PingAction.UNANSWERED
        return PingAction.PING if now >= self.sent + self.third else PingAction.NOTHING

    def next_due(self, oldest: float = inf) -> float:
        """When to look again."""
        return min(self.sent + self.third, self.heard + 2 * self.third, oldest + 3 * self.third)
