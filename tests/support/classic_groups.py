"""Random classic groups, and random changes between their rebalances.

A seed determines a sequence of rebalances. Members join, leave, change their topics, miss a
rebalance, lose their state, or claim partitions of others. Topics grow, and some do not exist. With
racks, some members and brokers have a rack, and replicas move to other brokers.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from asyncconsumer.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    PartitionsByMember,
    Racks,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from asyncconsumer.protocol.subscription_codec import StickyUserData
from asyncconsumer.types import TopicPartition

ASSIGNORS: dict[str, type[Assignor]] = {
    kind.name: kind
    for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
TOPICS = ("a", "b", "orders", "orders-eu", "orders.eu", "t1", "t10", "t2", "Z", "Aa", "BB", "x_9")
RACKS = ("north", "south", "östlich", "\U0001f600")
PREFIXES = ("consumer-billing-1", "c", "C", "ä", "ﬁ", "日本", "\U0001f600", "sarama")


@dataclass
class Peer:
    """A member between two rebalances."""

    member_id: str
    topics: Collection[str]
    assignor: Assignor
    instance: str | None
    version: int
    client: str = "today's"  # "old" has no generation in its user data; "strange" is another client
    owned: list[TopicPartition] = field(default_factory=list)
    generation: int = -1
    rack: str | None = None

    def subscription(self) -> MemberSubscription:
        """Return the subscription as the leader decodes it. Some versions lack some fields."""
        owned = self.owned if self.assignor.cooperative else []
        user_data = self.assignor.user_data(self.topics, owned, self.generation)
        if self.client == "strange":
            user_data = b"\x00\x00"
        elif self.client == "old" and user_data is not None and self.assignor.name == "sticky":
            user_data = StickyUserData.decode(user_data)._replace(generation=None).encode()
        subscription = MemberSubscription(
            tuple(self.topics), user_data, owned, self.generation, self.rack
        )
        return MemberSubscription.of(subscription.encode(self.version), self.instance)


@dataclass(frozen=True)
class Rebalance:
    """The input of an assignor, and asyncconsumer's result."""

    assignor: str
    topics: dict[str, int]
    members: dict[str, MemberSubscription]
    assignment: PartitionsByMember
    replicas: Mapping[TopicPartition, Sequence[str | None]] = field(default_factory=dict)
    """The rack of each replica of a partition."""


class RackLayout:
    """The racks of brokers, replicas and members: few, many or none."""

    def __init__(self, random: Random) -> None:
        self._random = random
        racks = random.sample(RACKS, random.choice((1, 2, 3, 4, 4)))
        brokers: list[str | None] = [*racks, *[None] * random.choice((0, 0, 0, 1, 3))]
        self._brokers = random.choices(brokers, k=random.randint(2, 7))
        others: list[str | None] = ["", "elsewhere", None]
        self._member_racks = [*racks, *random.choice(([], [], others[2:], others))]
        if random.random() < 0.1:
            self._member_racks = others
        self._copies = {topic: random.choice((1, 1, 2, 2, 3, 7)) for topic in TOPICS}
        self._replicas: dict[TopicPartition, list[int]] = {}

    def member_rack(self) -> str | None:
        """Return the rack of a new member."""
        return self._random.choice(self._member_racks)

    def move(self) -> None:
        """Move some replicas, and sometimes a broker with all its replicas, to other racks."""
        if self._random.random() < 0.2:
            self._brokers[self._random.randrange(len(self._brokers))] = self.member_rack() or None
        for tp in self._random.sample(list(self._replicas), len(self._replicas) // 4):
            del self._replicas[tp]

    def replicas(self, topics: Mapping[str, int]) -> dict[TopicPartition, list[str | None]]:
        """Return the racks of all replicas of the given topics."""
        every = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
        for tp in every:
            if tp not in self._replicas:
                nodes = range(len(self._brokers))
                copies = min(len(nodes), self._copies[tp.topic])
                self._replicas[tp] = self._random.sample(nodes, copies)
        return {tp: [self._brokers[node] for node in self._replicas[tp]] for tp in every}


def racks_of(replicas: Mapping[TopicPartition, Sequence[str | None]]) -> Racks:
    """Return the input of an assignor."""
    return {tp: {rack for rack in racks if rack is not None} for tp, racks in replicas.items()}


class RandomGroup:
    """A group with one assignor, and its random changes."""

    def __init__(
        self, random: Random, assignor: str, *, even: bool, large: bool = False, racks: bool = False
    ) -> None:
        self._random = random
        self._racks = RackLayout(random) if racks else None
        self._kind = ASSIGNORS[assignor]
        self._even = even
        self._max_partitions = 40 if large else 6
        names = random.sample(TOPICS, random.randint(1, 4 if even else 7))
        # with racks, topics of the same size are assigned together
        sizes = (3, 4, 4, random.randint(1, 12)) if racks else range(1, 13)
        self._topics = {name: random.choice(sizes) for name in names}
        self._topics_to_read = [*names, *(["missing"] if random.random() < 0.2 else [])]
        self._count = 0
        self._peers = [self._peer() for _ in range(random.randint(1, self._max_partitions))]

    def _peer(self) -> Peer:
        random = self._random
        self._count += 1
        hexadecimal = f"{random.getrandbits(48):012x}"
        return Peer(
            f"{random.choice(PREFIXES)}-{hexadecimal}",
            self._choice(),
            self._kind(),
            f"i-{self._count % 7}-{self._count}" if random.random() < 0.3 else None,
            random.choice((0, 1, 2, 3, 3, 3, 3, 3)),
            random.choices(("today's", "old", "strange"), (30, 3, 1))[0],
            rack=self._racks.member_rack() if self._racks else None,
        )

    def _choice(self) -> list[str]:
        requested = self._topics_to_read
        if self._even:
            return requested
        return self._random.sample(requested, self._random.randint(1, len(requested)))

    def rebalances(self, count: int) -> Iterator[Rebalance]:
        """Yield rebalances of the group, with changes between them."""
        for generation in range(1, count + 1):
            self._random.shuffle(self._peers)  # the broker lists members in any order
            members = {peer.member_id: peer.subscription() for peer in self._peers}
            topics = dict(self._topics)
            replicas = self._racks.replicas(topics) if self._racks else {}
            assignment = self._kind().assign(topics, members, racks_of(replicas))
            yield Rebalance(self._kind.name, topics, members, assignment, replicas)
            for peer in self._peers:
                if self._random.random() < 0.93:  # the others miss the assignment
                    peer.owned, peer.generation = assignment[peer.member_id], generation
                    peer.assignor.assigned(peer.owned, generation)
            self._change()
            if self._racks and self._random.random() < 0.2:
                self._racks.move()

    def _change(self) -> None:
        random = self._random
        for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
            match random.randrange(8):
                case 0 | 1:
                    if len(self._peers) < self._max_partitions:
                        self._peers.append(self._peer())
                case 2 | 3:
                    if len(self._peers) > 1:
                        self._peers.remove(random.choice(self._peers))
                case 4:
                    topic = random.choice(list(self._topics))
                    self._topics[topic] += random.randint(0, 3)
                case 5:
                    self._change_topics()
                case 6:
                    peer = random.choice(self._peers)
                    peer.assignor, peer.owned, peer.generation = self._kind(), [], -1
                case 7:
                    self._claim_partitions_of_another()

    def _claim_partitions_of_another(self) -> None:
        """Let a member claim partitions of another, as if it had missed a rebalance."""
        thief, other = self._random.choices(self._peers, k=2)
        stolen = self._random.sample(other.owned, len(other.owned) // 2)
        thief.owned = list(dict.fromkeys([*thief.owned, *stolen]))
        thief.generation = max(thief.generation, other.generation) + self._random.choice((-1, 0))
        thief.assignor.assigned(thief.owned, thief.generation)

    def _change_topics(self) -> None:
        random = self._random
        if self._even:
            gone = random.choice([*self._topics, "missing"])
            self._topics_to_read = [topic for topic in self._topics_to_read if topic != gone] or [
                "missing"
            ]
            for peer in self._peers:
                peer.topics = self._topics_to_read
        else:
            random.choice(self._peers).topics = self._choice()


def random_rebalance(
    random: Random, assignor: str, *, limit: int = 20, racks: bool = False
) -> Rebalance:
    """Return a rebalance of a group whose members claim random partitions.

    Members of several generations claim only partitions of their topics, because Java fails
    otherwise.
    """
    topics = {topic: random.randint(1, limit) for topic in random.sample(TOPICS, 5)}
    generations = random.choice(((1,), (1, 2), (1, 2, 3)))
    peers = []
    for number in range(random.randint(3, 9)):
        requested = random.sample(list(topics), random.randint(1, 4))
        peer = Peer(f"m{number}", requested, ASSIGNORS[assignor](), None, 3)
        peer.generation = random.choice(generations)
        peers.append(peer)
    favourite = random.choice(peers)
    for partition in (TopicPartition(t, n) for t, count in topics.items() for n in range(count)):
        claimants = [peer for peer in peers if partition.topic in peer.topics]
        if favourite in claimants and random.random() < 0.4:
            claimants = [favourite]
        elif len(generations) == 1 and random.random() < 0.1:
            claimants = peers
        count = min(len(claimants), random.choice((0, 1, 1, 1, 1, 1, 1, 2)))
        for peer in random.sample(claimants, count):
            peer.owned.append(partition)
    for peer in peers:
        peer.assignor.assigned(peer.owned, peer.generation)
    replicas = {}
    if racks:
        places = RackLayout(random)
        replicas = places.replicas(topics)
        for peer in peers:
            peer.rack = places.member_rack()
    members = {peer.member_id: peer.subscription() for peer in peers}
    assignment = ASSIGNORS[assignor]().assign(topics, members, racks_of(replicas))
    return Rebalance(assignor, topics, members, assignment, replicas)


def still_owned(rebalance: Rebalance, partition: TopicPartition, but_by: str = "") -> bool:
    """Return whether a member claims to own the partition."""
    return any(
        partition in subscription.owned_partitions
        for member, subscription in rebalance.members.items()
        if member != but_by
    )


def is_sound(rebalance: Rebalance, assignment: PartitionsByMember) -> bool:
    """Return whether each subscribed partition is assigned once, to a member that subscribes to it.

    In a cooperative group a partition may be left out if a member still owns it.
    """
    values = [(member, p) for member, mine in assignment.items() for p in mine]
    requested = {
        TopicPartition(topic, number)
        for subscription in rebalance.members.values()
        for topic in subscription.topics
        for number in range(rebalance.topics.get(topic, 0))
    }
    if ASSIGNORS[rebalance.assignor].cooperative:
        missing = requested.difference(p for _, p in values)
        requested -= {p for p in missing if still_owned(rebalance, p)}
    return (
        assignment.keys() == rebalance.members.keys()
        and all(p.topic in rebalance.members[member].topics for member, p in values)
        and sorted(p for _, p in values) == sorted(requested)
    )
