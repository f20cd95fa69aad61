"""A parser of the Java regular expressions in topic filters.

Registrations in ZooKeeper contain Java regular expressions, written by any member. Topic names have
only 65 different characters, so every character class becomes a subset of those. Backreferences,
possessive quantifiers and atomic groups are rejected, because the automaton of `regex_matcher`
cannot express them.
"""

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
MAX_PATTERN_LENGTH: Final = 2**14
_MAX_DEPTH: Final = 50
_MAX_REPEAT: Final = 1_000

_DIGITS: Final = frozenset(string.digits)
_UPPER: Final = frozenset(string.ascii_uppercase)
_LOWER: Final = frozenset(string.ascii_lowercase)
_LETTERS: Final = _UPPER | _LOWER
WORD: Final = _LETTERS | _DIGITS | {"_"}
_NOTHING: Final[frozenset[str]] = frozenset()
_SHORTHANDS: Final = {"d": _DIGITS, "w": WORD, "s": _NOTHING, "h": _NOTHING, "v": _NOTHING}
_PROPERTIES: Final = {
    **dict.fromkeys(("Lower", "Ll", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "IsUppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsLetter", "IsAlphabetic", "IsLatin"), _LETTERS),
    **dict.fromkeys(("Digit", "N", "Nd", "IsN", "IsDigit"), _DIGITS),
    **dict.fromkeys(("Alnum",), _LETTERS | _DIGITS),
    **dict.fromkeys(("Punct", "P", "IsPunctuation"), frozenset("._-")),
    **dict.fromkeys(("ASCII", "Graph", "Print"), ALPHABET),
    **dict.fromkeys(("Space", "Blank", "Cntrl", "IsWhite_Space"), _NOTHING),
}
_CONTROLS: Final = frozenset("tnrfae")  # escapes of characters that no topic name has
_NO_EFFECT: Final = frozenset("smudU")  # flags about line ends, or characters beyond ASCII


class PatternError(ValueError):
    """A pattern is invalid, or the linear-time matcher does not support it."""


@dataclass(frozen=True, slots=True)
class Chars:
    """A part that matches one character of a set."""

    of: frozenset[str]


@dataclass(frozen=True, slots=True)
class Chain:
    """A sequence of parts that match one after the other."""

    parts: Sequence["Node"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternative parts, of which one must match."""

    parts: Sequence["Node"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part that matches `minimum` to `maximum` times. A `maximum` of None means no limit."""

    part: "Node"
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition on a position: "^" start, "$" end, "b" word boundary, "B" no word boundary."""

    kind: str


@dataclass(frozen=True, slots=True)
class Look:
    """A lookahead or lookbehind, positive or negative."""

    part: "Node"
    behind: bool
    negative: bool


_PLAIN: Final = {char: Chars(frozenset(char)) for char in ALPHABET - {"."}}
Node: TypeAlias = Chars | Chain | Choice | Repeat | Assertion | Look


def parse(text: str) -> Node:
    """Parse a pattern into a syntax tree. Raise `PatternError` if the pattern is not supported."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise PatternError(f"it has {len(text)} characters, more than {MAX_PATTERN_LENGTH}")
    return _Parser(text).parse()


class _Parser:
    """A recursive descent parser. It limits the depth of nested groups."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = 0
        self._ignore_case = False

    def parse(self) -> Node:
        tree = self._choice(0)
        if self._index < len(self._text):
            raise self._error("unmatched ')'")
        return tree

    # --- characters of the pattern ---------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._index + ahead : self._index + ahead + 1]

    def _next(self, expected: str) -> str:
        if not (char := self._peek()):
            raise self._error(f"{expected} is missing at the end")
        self._index += 1
        return char

    def _accept(self, token: str) -> bool:
        if accepted := self._text.startswith(token, self._index):
            self._index += len(token)
        return accepted

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._index)
        if stop < 0:
            raise self._error(f"{end!r} is missing")
        text, self._index = self._text[self._index : stop], stop + len(end)
        return text

    def _error(self, why: str) -> PatternError:
        return PatternError(f"{why}, at position {self._index}")

    # --- structure -------------------------------------------------------------------------------

    def _choice(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise self._error(f"groups are nested more than {_MAX_DEPTH} deep")
        before = self._ignore_case
        branches = [self._chain(depth)]
        while self._accept("|"):
            branches.append(self._chain(depth))
        self._ignore_case = before
        return branches[0] if len(branches) == 1 else Choice(branches)

    def _chain(self, depth: int) -> Node:
        parts: list[Node] = []
        while (char := self._peek()) and char not in "|)":
            if (plain := _PLAIN.get(char)) is not None and not self._ignore_case:
                self._index += 1
                parts.append(self._quantified(plain))
            elif self._accept("\\Q"):
                stop = self._text.find("\\E", self._index)
                quoted = self._text[self._index :] if stop < 0 else self._text[self._index : stop]
                self._index = len(self._text) if stop < 0 else stop + 2
                parts.extend(self._literal(char) for char in quoted)
                if parts and quoted:
                    parts[-1] = self._quantified(parts[-1])
            elif (atom := self._atom(depth)) is not None:
                parts.append(self._quantified(atom))
        return parts[0] if len(parts) == 1 else Chain(parts)

    def _atom(self, depth: int) -> Node | None:
        """Parse a character, a character class, a group, a lookaround or an anchor.

        Return None for a group that only sets flags.
        """
        char = self._next("a character")
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return Chars(self._class(0))
            case ".":
                return Chars(ALPHABET)
            case "^" | "$":
                return Assertion(char)
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                self._index -= 1
                raise self._error(f"{char!r} repeats nothing")
        return self._literal(char)

    def _literal(self, char: str) -> Chars:
        return Chars(self._set_of(char))

    def _set_of(self, chars: str | frozenset[str]) -> frozenset[str]:
        """Return the characters allowed in topic names that a character or a set matches."""
        return self._cased(frozenset(chars) & ALPHABET)

    def _cased(self, chars: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return chars
        return chars | {char.swapcase() for char in chars}

    def _group(self, depth: int) -> Node | None:
        looks: dict[str, Callable[[Node], Node]] = {
            "?=": lambda part: Look(part, behind=False, negative=False),
            "?!": lambda part: Look(part, behind=False, negative=True),
            "?<=": lambda part: Look(part, behind=True, negative=False),
            "?<!": lambda part: Look(part, behind=True, negative=True),
        }
        wrap: Callable[[Node], Node] = lambda part: part  # noqa: E731 - the usual case
        before = self._ignore_case
        for token, look in looks.items():
            if self._accept(token):
                wrap = look
                break
        else:
            if self._accept("?>"):
                raise self._error("an atomic group needs backtracking, which is not supported")
            if self._accept("?<") or self._accept("?P<"):
                if not self._until(">").isalnum():
                    raise self._error("a group has no valid name")
            elif self._accept("?") and not self._flags():
                return None
        part = self._choice(depth + 1)
        self._ignore_case = before
        if not self._accept(")"):
            raise self._error("')' is missing")
        return wrap(part)

    def _flags(self) -> bool:
        """Parse inline flags.

        Return True for "(?i:...)", whose flags apply to a group that follows. Return False for
        "(?i)".
        """
        on = True
        while (char := self._next("the end of a group")) not in ":)":
            if char == "-":
                on = False
            elif char == "i":
                self._ignore_case = on
            elif char not in _NO_EFFECT:
                raise self._error(f"the group '(?{char}' is not supported")
        return char == ":"

    # --- quantifiers -----------------------------------------------------------------------------

    def _quantified(self, atom: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        if self._accept("+"):
            raise self._error("a possessive quantifier needs backtracking, which is not supported")
        self._accept("?")  # a lazy quantifier matches the same whole names
        if self._peek() in ("*", "+", "?", "{"):
            raise self._error(f"{self._peek()!r} repeats a repetition")
        return Repeat(atom, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._peek() not in ("*", "+", "?", "{"):
            return None
        for token, bounds in {"*": (0, None), "+": (1, None), "?": (0, 1)}.items():
            if self._accept(token):
                return bounds
        if not self._accept("{"):
            return None
        first, comma, last = self._until("}").partition(",")
        minimum = self._count(first)
        maximum = self._count(last) if last else None if comma else minimum
        if maximum is not None and maximum < minimum:
            raise self._error("a repetition has its limits in the wrong order")
        return minimum, maximum

    def _count(self, digits: str) -> int:
        if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
            raise self._error(f"{digits[:20]!r} is no number of repetitions")
        if (count := int(digits)) > _MAX_REPEAT:
            raise self._error(f"{count} repetitions are more than {_MAX_REPEAT}")
        return count

    # --- escapes and classes ---------------------------------------------------------------------

    def _escape(self) -> Node:
        char = self._peek()
        if char in ("b", "B"):
            self._index += 1
            return Assertion(char)
        for letter, kind in {"A": "^", "Z": "$", "z": "$"}.items():
            if self._accept(letter):
                return Assertion(kind)
        return Chars(self._set_of(self._escaped()))

    def _escaped(self) -> str | frozenset[str]:
        """Parse an escape sequence.

        Return the character or the set of characters that it stands for.
        """
        char = self._next("what '\\' escapes")
        if (chars := _SHORTHANDS.get(char.lower())) is not None:
            return ALPHABET - chars if char.isupper() else chars
        if char in "pP":
            name = self._until("}")[1:] if self._peek() == "{" else self._next("a property")
            if (chars := _PROPERTIES.get(name)) is None:
                raise self._error(f"the property {name[:20]!r} is not supported")
            return ALPHABET - chars if char == "P" else chars
        if char in "xu":
            width = 2 if char == "x" else 4
            digits, self._index = self._text[self._index : self._index + width], self._index + width
            if len(digits) < width or any(digit not in string.hexdigits for digit in digits):
                raise self._error(f"{digits[:width]!r} is no hexadecimal code")
            return chr(int(digits, 16))
        if char in _CONTROLS:
            return _NOTHING
        if char in _DIGITS or char == "k":
            raise self._error("a backreference needs backtracking, which is not supported")
        if char in _LETTERS:
            raise self._error(f"the escape '\\{char}' is not supported")
        return char

    def _class(self, depth: int) -> frozenset[str]:
        """Parse a character class with Java's unions "[a[bc]]" and intersections "&&"."""
        if depth > _MAX_DEPTH:
            raise self._error(f"classes are nested more than {_MAX_DEPTH} deep")
        negative = self._accept("^")
        chars: frozenset[str] = _NOTHING
        intersected: frozenset[str] | None = None  # the left side of "&&"
        first = True
        while first or self._peek() != "]":
            if self._accept("&&"):
                if negative:
                    raise self._error("a negated intersection differs between versions of Java")
                intersected, chars = chars if intersected is None else intersected & chars, _NOTHING
            elif self._accept("["):
                chars |= self._class(depth + 1)
            else:
                chars |= self._range()
            first = False
        self._index += 1
        if intersected is not None:
            chars &= intersected
        return ALPHABET - chars if negative else chars

    def _range(self) -> frozenset[str]:
        """Parse one item of a character class: a character, a range such as "a-z", or an escape."""
        low = self._class_item("']'")
        if not isinstance(low, str) or self._peek() != "-" or self._peek(1) in ("]", "[", ""):
            return self._set_of(low)
        self._index += 1
        high = self._class_item("the end of a range")
        if not isinstance(high, str) or high < low:
            raise self._error("a range has no end, or an end before its start")
        return self._cased(frozenset(char for char in ALPHABET if low <= char <= high))

    def _class_item(self, expected: str) -> str | frozenset[str]:
        char = self._next(expected)
        if char != "\\":
            return char
        if self._peek() == "Q":
            raise self._error("a quotation in a class is not supported")
        return self._escaped()
