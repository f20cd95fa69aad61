"""What a member of a KIP-848 group says, what it concludes from answers, and by when it must act.

Nothing here waits for anything: `group.kip848` sends, and says when.
"""

import enum
from collections.abc import Mapping
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.errors import (
    ConsumerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupAccessDenied,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    NotCoordinator,
    TopicAccessDenied,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from asyncconsumer.group.kip848.topic_watch import Partitions, ResolvedSubscription
from asyncconsumer.group.subscription import PatternSubscription
from asyncconsumer.protocol.consumer_group import JOIN_EPOCH

_MARGIN: Final = 0.1  # of a time that the coordinator's clock measures, not ours


class HeartbeatReaction(enum.Enum):
    """What to do about a coordinator's no."""

    REJOIN = "all is lost; join again"
    REJOIN_OR_END = "all is lost if we had something; who is joining has nothing, and gives up"
    RETRY = "say everything again, to whoever coordinates by then"
    END = "raise it; trying again changes nothing"
    UNSUPPORTED = "this group cannot have members of our kind"


REACTIONS: Final[Mapping[type[ConsumerError], HeartbeatReaction]] = {
    FencedMemberEpoch: HeartbeatReaction.REJOIN,
    UnknownMemberId: HeartbeatReaction.REJOIN,
    GroupIdNotFound: HeartbeatReaction.REJOIN_OR_END,  # it is forgotten with its last member
    CoordinatorLoading: HeartbeatReaction.RETRY,
    CoordinatorNotAvailable: HeartbeatReaction.RETRY,
    NotCoordinator: HeartbeatReaction.RETRY,
    UnreleasedInstanceId: HeartbeatReaction.RETRY,  # until the previous member left or expired
    FencedInstanceId: HeartbeatReaction.END,
    GroupAccessDenied: HeartbeatReaction.END,
    GroupMaxSizeReached: HeartbeatReaction.END,
    InconsistentGroupProtocol: HeartbeatReaction.END,
    InvalidGroupId: HeartbeatReaction.END,
    InvalidRegularExpression: HeartbeatReaction.END,
    InvalidRequest: HeartbeatReaction.END,
    TopicAccessDenied: HeartbeatReaction.END,
    UnsupportedAssignor: HeartbeatReaction.END,
    UnsupportedVersion: HeartbeatReaction.UNSUPPORTED,
}


def reaction(error: ConsumerError) -> HeartbeatReaction:
    """What to do about an answer, or about none; what is not in the table says it itself."""
    otherwise = HeartbeatReaction.RETRY if error.retriable else HeartbeatReaction.END
    return REACTIONS.get(type(error), otherwise)


class Phase(enum.Enum):
    """How we stand with the group."""

    JOINING = "nothing is ours yet"
    MEMBER = "what we were given is ours"
    FENCED = "everything is lost, and whoever reads it has to know before we join again"
    OUT = "we are no member, and will not be"


class Timeouts(NamedTuple):
    """The coordinator's patience, in seconds: with silence, and with who is to let go."""

    session: float
    rebalance: float
    suspensions: Suspensions

    def end(self, start: float, timeout: float) -> float:
        """The end of a timeout by the loop's clock, which does not count suspended time."""
        return start + timeout * (1 - _MARGIN) - self.suspensions.since(start)


class HeartbeatFields(NamedTuple):
    """What a heartbeat says besides that we live; None where nothing changed since the last."""

    everything: bool = False
    subscribed: ResolvedSubscription | None = None
    topics: list[str] | None = None
    topic_regex: str | None = None
    owned: Partitions | None = None


class _Acknowledged(NamedTuple):
    """What the coordinator was told of last; None if that is open."""

    subscribed: ResolvedSubscription | None = None
    owned: Partitions | None = None


class MemberState848:
    """One member's side of it."""

    def __init__(self, member_id: str, timeouts: Timeouts) -> None:
        self.member_id: Final = member_id
        self.phase = Phase.JOINING
        self.epoch = JOIN_EPOCH
        self.interval = 1.0  # seconds; until the coordinator tells
        self.target: Partitions = {}
        self.owned: Partitions = {}  # and may be read: given to whoever reads, not yet taken back
        self.given = False  # what is ours was given to whoever reads, and is being read
        self._told = _Acknowledged()
        self._lived = -inf  # when the last sign of life that was heard was sent
        self._unheard = inf  # when the first was sent of which we do not know the answer
        self._let_go_since = inf  # when we may have been told first to let go of something
        self._timeouts = timeouts

    def learn_session_timeout(self, seconds: float) -> None:
        """The coordinator's own."""
        self._timeouts = self._timeouts._replace(session=seconds)

    @property
    def last_heartbeat(self) -> float:
        """When the last heartbeat was sent that was answered."""
        return self._lived

    @property
    def certain_until(self) -> float:
        """Until when what we own is ours, if we hear no more.

        We are given up when we are silent for a session, or do not let go in time of what we were
        told to let go of; and an answer that we did not get may have told us so.
        """
        if self.phase is not Phase.MEMBER:
            return -inf
        timeouts, rebalance = self._timeouts, self._timeouts.rebalance
        return min(
            timeouts.end(self._lived, timeouts.session),
            timeouts.end(self._unheard, rebalance),
            timeouts.end(self._let_go_since, rebalance),
        )

    @property
    def patience(self) -> float:
        """How many seconds to wait for an answer: there must be time for other tries."""
        return self._timeouts.session / 3

    @property
    def unacknowledged(self) -> bool:
        """Whether the coordinator has yet to be told what we own."""
        return self.phase is Phase.MEMBER and self._told.owned != self.owned

    def knows(self, subscribed: ResolvedSubscription | None) -> bool:
        """Whether the coordinator answered a heartbeat that told this subscription."""
        return subscribed is not None and self._told.subscribed == subscribed

    # --- saying ----------------------------------------------------------------------------------

    def words(self, subscribed: ResolvedSubscription, *, regexes: bool) -> HeartbeatFields:
        """What to say now, to a coordinator that can match patterns or cannot."""
        everything = self.phase is Phase.JOINING or self._told.subscribed is None
        topics = regex = None
        if everything or subscribed != self._told.subscribed:
            by_regex = regexes and isinstance(subscribed.subscription, PatternSubscription)
            topics = [] if by_regex else sorted(subscribed.names)
            if regexes:  # an empty one takes back what was said before
                regex = getattr(subscribed.subscription, "text", "")
        owned = self.owned if everything or self.unacknowledged else None
        said = subscribed if topics is not None else None
        return HeartbeatFields(everything, said, topics, regex, owned)

    def sent(self, now: float) -> None:
        """A heartbeat is on its way."""
        self._timeouts.suspensions.look()
        self._unheard = min(self._unheard, now)

    def repeat_everything(self) -> None:
        """An answer was lost, or was an error: nobody knows what the coordinator has heard."""
        self._told = _Acknowledged()

    def heartbeat_from_thread(self, sent_at: float) -> None:
        """Another one, in any thread, sent a heartbeat, and threw away what the answer said."""
        self._lived = max(self._lived, sent_at)
        self.repeat_everything()
        self._unheard = min(self._unheard, sent_at)

    # --- hearing ---------------------------------------------------------------------------------

    def heard(self, answer: Mapping[str, Any], words: HeartbeatFields, sent_at: float) -> bool:
        """Take in a good answer; whether there is another target."""
        since, self._unheard = self._unheard, inf
        overtaken = self._lived > sent_at  # by an answer that nobody has read
        if overtaken:
            self._unheard = since
        joined = self.phase is Phase.JOINING
        self.phase = Phase.MEMBER
        self.epoch = answer["member_epoch"]
        self.interval = max(answer["heartbeat_interval_ms"], 1) / 1000
        self._lived = max(self._lived, sent_at)
        if words.subscribed is not None:
            self._told = self._told._replace(subscribed=words.subscribed)
        if words.owned is not None:
            self._told = self._told._replace(owned=words.owned)
            if _is_within(words.owned, self.target):
                self._let_go_since = inf
        if overtaken:
            self.repeat_everything()
        told = answer["assignment"]
        target = self.target if told is None else _partitions(told[0])
        if target == self.target:
            return joined
        if not (_is_within(self.target, target) and _is_within(self.owned, target)):
            self._let_go_since = min(self._let_go_since, since)
        self.target = target
        # it waits for our word, also if we have let go of nothing
        self._told = self._told._replace(owned=None)
        return True

    def lost(self) -> None:
        """The coordinator has given up on us. What we owned is what is lost."""
        owned = self.owned
        self._forget(Phase.FENCED)
        self.owned = owned

    def rejoin(self) -> None:
        """Nothing of what was lost is read any more."""
        if self.phase is Phase.FENCED:
            self._forget(Phase.JOINING)

    def end(self) -> None:
        """We are no member from now on."""
        self._forget(Phase.OUT)

    def _forget(self, phase: Phase) -> None:
        self.phase, self.epoch = phase, JOIN_EPOCH
        self.target, self.owned, self.given = {}, {}, False
        self._lived, self._unheard, self._let_go_since = -inf, inf, inf
        self.repeat_everything()

    # --- what we own -----------------------------------------------------------------------------

    def give(self, partitions: Partitions) -> None:
        """They are about to be read, besides what is let go of by and by."""
        self.given = True
        self.owned = {
            one: self.owned.get(one, frozenset()) | partitions.get(one, frozenset())
            for one in {**self.owned, **partitions}
        }

    def give_again(self) -> None:
        """Not all that was given is read: it is worth telling though it is the same."""
        self.given = False

    def settle(self, partitions: Partitions) -> None:
        """They are read, and nothing else is."""
        if self.phase is Phase.MEMBER:
            self.owned = partitions


def _is_within(some: Partitions, others: Partitions) -> bool:
    return all(numbers <= others.get(one, frozenset()) for one, numbers in some.items())


def _partitions(rows: Any) -> dict[UUID, frozenset[int]]:  # noqa: ANN401 - as it was decoded
    return {topic_id: frozenset(numbers) for topic_id, numbers, *_ in rows if numbers}
