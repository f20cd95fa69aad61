"""A matcher of topic names in linear time, within a limited number of steps.

The pattern becomes a Thompson automaton. All possible states are followed at once, so no pattern
causes backtracking. Sets of states that were reached before are cached (a lazy DFA).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from asyncconsumer.group.zookeeper.regex_parser import (
    WORD,
    Assertion,
    Chain,
    Chars,
    Choice,
    Look,
    Node,
    PatternError,
    Repeat,
    parse,
)

_MAX_STATES: Final = 2**14
_MAX_KEPT: Final = 2**16  # states in all cached sets, to bound their memory
_ACCEPT: Final = 0
_INSIDE: Final = -1  # a position that is neither the start nor the end of a name


class TooManySteps(Exception):
    """Matching needs more steps than its limit."""


class Steps:
    """The number of steps that a match may still take. Further steps raise `TooManySteps`."""

    def __init__(self, limit: int) -> None:
        self.remaining = limit

    def take(self, count: int) -> None:
        """Count `count` steps. Raise `TooManySteps` if fewer are left."""
        self.remaining -= count
        if self.remaining < 0:
            raise TooManySteps


@dataclass(slots=True)
class _AutomatonState:
    """A state of the automaton: the characters that it reads, or the condition that it checks."""

    to: list[int]
    chars: frozenset[str] | None = None
    condition: "Assertion | _LookState | None" = None


@dataclass(frozen=True, slots=True)
class _LookState:
    start: int
    behind: bool
    negative: bool


@dataclass(slots=True, eq=False)
class _Set:
    """The automaton states that are possible at one position of a name.

    The sets that follow it are cached by character.
    """

    states: frozenset[int]
    next: dict[str, "_Set"] = field(default_factory=dict)
    accepts: bool | None = None  # None until computed


class _Automaton:
    """The Thompson automaton of one pattern."""

    def __init__(self, tree: Node) -> None:
        self.states = [_AutomatonState([])]
        self.depends_on_place = False  # has conditions other than the start and end of a name
        self._work = 0
        self.start = self._add(tree, _ACCEPT)

    def _state(self, state: _AutomatonState) -> int:
        if len(self.states) >= _MAX_STATES:
            raise PatternError(f"it needs more than {_MAX_STATES} states")
        self.states.append(state)
        return len(self.states) - 1

    def _add(self, node: Node, following: int) -> int:
        """Add the states for the pattern part `node`. After the part, state `following` is next.

        Return the first state of the part.
        """
        self._work += 1
        if self._work > 2 * _MAX_STATES:  # repetitions of an empty part add no states
            raise PatternError(f"it has more than {2 * _MAX_STATES} parts")
        match node:
            case Chars():
                return self._state(_AutomatonState([following], chars=node.of))
            case Chain():
                for part in reversed(node.parts):
                    following = self._add(part, following)
                return following
            case Choice():
                return self._state(
                    _AutomatonState([self._add(part, following) for part in node.parts])
                )
            case Repeat():
                return self._repeat(node, following)
            case Assertion():
                self.depends_on_place |= node.kind in "bB"
                return self._state(_AutomatonState([following], condition=node))
            case Look():
                self.depends_on_place = True
                look = _LookState(self._add(node.part, _ACCEPT), node.behind, node.negative)
                return self._state(_AutomatonState([following], condition=look))

    def _repeat(self, node: Repeat, following: int) -> int:
        minimum = node.minimum
        if node.maximum is None:
            again = self._state(_AutomatonState([]))
            body = self._add(node.part, again)
            self.states[again].to = [body, following]
            following, minimum = (body, minimum - 1) if minimum else (again, 0)
        else:
            end = following
            for _ in range(node.maximum - minimum):
                following = self._state(_AutomatonState([self._add(node.part, following), end]))
        for _ in range(minimum):
            following = self._add(node.part, following)
        return following


class _Place:
    """A topic name that is being matched, with the cached results of its lookarounds."""

    def __init__(self, matcher: "Matcher", name: str, steps: Steps) -> None:
        self._matcher = matcher
        self._name = name
        self._steps = steps
        self._looks: dict[tuple[int, int], bool] = {}

    def holds(self, state: int, condition: Assertion | _LookState, index: int) -> bool:
        """Return whether the condition of a state is true at position `index` of the name."""
        if isinstance(condition, _LookState):
            key = state, index
            if key not in self._looks:
                self._looks[key] = self._look(condition, index) != condition.negative
            return self._looks[key]
        match condition.kind:
            case "^":
                return index == 0
            case "$":
                return index == len(self._name)
        name = self._name
        before, after = name[max(index - 1, 0) : index] in WORD, name[index : index + 1] in WORD
        return (before != after) == (condition.kind == "b")

    def _look(self, look: _LookState, index: int) -> bool:
        automaton, name = self._matcher, self._name
        current: Iterable[int] = (look.start,)
        for place in range(0 if look.behind else index, index if look.behind else len(name)):
            states = automaton.closure(current, place, self, self._steps)
            if not look.behind and _ACCEPT in states:
                return True
            current = automaton.read(states, name[place])
            if look.behind:
                current = (*current, look.start)
            elif not current:
                return False
        end = index if look.behind else len(name)
        return _ACCEPT in automaton.closure(current, end, self, self._steps)


class Matcher:
    """A compiled pattern.

    Its construction raises `PatternError` if the pattern is not supported.
    """

    def __init__(self, text: str) -> None:
        self._automaton = _Automaton(parse(text))
        self._sets: dict[frozenset[int], _Set] = {}
        self._first: _Set | None = None
        self._cached_states = 0

    def matches(self, name: str, steps: Steps) -> bool:
        """Return whether the pattern matches the whole of a non-empty topic name."""
        place = _Place(self, name, steps)
        if self._automaton.depends_on_place:
            states = self.closure((self._automaton.start,), 0, place, steps)
            for index, char in enumerate(name, start=1):
                states = self.closure(self.read(states, char), index, place, steps)
            return _ACCEPT in states
        return self._by_known_sets(name, place, steps)

    def _by_known_sets(self, name: str, place: _Place, steps: Steps) -> bool:
        steps.take(len(name))
        current = self._first
        if current is None:
            states = self.closure((self._automaton.start,), 0, place, steps)
            current = self._first = self._set(states)
        for char in name:
            following = current.next.get(char)
            if following is None:
                states = self.closure(self.read(current.states, char), _INSIDE, place, steps)
                following = current.next[char] = self._set(states)
            if not following.states:
                return False
            current = following
        if current.accepts is None:
            current.accepts = _ACCEPT in self.closure(current.states, len(name), place, steps)
        return current.accepts

    def _set(self, states: frozenset[int]) -> _Set:
        known = self._sets.get(states)
        if known is None:
            self._cached_states += len(states) + 1
            if self._cached_states > _MAX_KEPT:
                self._sets, self._cached_states, self._first = {}, 0, None
            known = self._sets[states] = _Set(states)
        return known

    def read(self, states: Iterable[int], char: str) -> list[int]:
        """Return the states that follow `states` when the character `char` is read."""
        known = self._automaton.states
        following: list[int] = []
        for number in states:
            state = known[number]
            if state.chars is not None and char in state.chars:
                following.extend(state.to)
        return following

    def closure(
        self, states: Iterable[int], index: int, place: _Place, steps: Steps
    ) -> frozenset[int]:
        """Return all states that are reachable at position `index` without reading a character.

        The result includes `states`. Conditions are checked at that position of the topic name.
        """
        known: Sequence[_AutomatonState] = self._automaton.states
        closed: set[int] = set()
        pending = list(states)
        while pending:
            number = pending.pop()
            if number in closed:
                continue
            steps.take(1)
            closed.add(number)
            state = known[number]
            if state.chars is not None:
                continue
            if state.condition is None or place.holds(number, state.condition, index):
                pending.extend(state.to)
        return frozenset(closed)
