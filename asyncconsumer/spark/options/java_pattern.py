"""The translation of Java's regular expressions for topic names to Python's.

Topic names consist of 65 ASCII characters. So each character class, such as `\\p{Lu}` or
`[a-z&&[^b]]`, is computed as a set of them, and Python gets the characters one by one.
"""

import re
from typing import Final

from asyncconsumer.errors import ConfigError

_LOWER: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGIT: Final = frozenset("0123456789")
_ALPHA: Final = _LOWER | _UPPER
_NAME: Final = _ALPHA | _DIGIT | frozenset("._-")  # what topic names may have
_WORD: Final = _ALPHA | _DIGIT | {"_"}
_NONE: Final[frozenset[str]] = frozenset()

_ESCAPES: Final = {"d": _DIGIT, "w": _WORD, "s": _NONE, "h": _NONE, "v": _NONE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_UNCASED: Final = {
    "alpha": _ALPHA,
    "alphabetic": _ALPHA,
    "letter": _ALPHA,
    "l": _ALPHA,
    "lower": _LOWER,
    "lowercase": _LOWER,
    "ll": _LOWER,
    "upper": _UPPER,
    "uppercase": _UPPER,
    "lu": _UPPER,
    "digit": _DIGIT,
    "nd": _DIGIT,
    "n": _DIGIT,
    "alnum": _ALPHA | _DIGIT,
    "xdigit": _DIGIT | frozenset("abcdefABCDEF"),
    "hexdigit": _DIGIT | frozenset("abcdefABCDEF"),
    "punct": frozenset("._-"),
    "punctuation": frozenset("._-"),
    "p": frozenset("._-"),
    "pd": frozenset("-"),
    "pc": frozenset("_"),
    "po": frozenset("."),
    "graph": _NAME,
    "print": _NAME,
    "ascii": _NAME,
    "latin": _ALPHA,
    **dict.fromkeys(("space", "blank", "cntrl", "whitespace", "white_space", "s", "z", "m"), _NONE),
}
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})")
_OCTAL: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY: Final = re.compile(r"[pP](?:\{([^}]*)\}|(\w))")
_PREFIXES: Final = re.compile(r"^(?:java|is|in|(?:sc|script|gc|general_category)=)")
_IGNORED_FLAGS: Final = str.maketrans("", "", "duU")  # no effect on topic names


def translate(pattern: str) -> str:
    """Return a Python expression that matches the same topic names as Java's `pattern`.

    The two may differ for other text. Raise ConfigError if Python has no such expression.
    """
    try:
        return _Translator(pattern).translated()
    except IndexError:
        raise ConfigError(
            f"`subscribePattern` {pattern!r} is incomplete. Close its groups and classes, and "
            "complete its last escape."
        ) from None


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._index = 0
        self._ignores_case = False

    def translated(self) -> str:
        result = self._alternatives()
        if self._index < len(self._text):
            raise self._refused(")")
        return result

    # --- groups ----------------------------------------------------------------------------------

    def _alternatives(self) -> str:
        """Return the translation of the text up to the end of the current group.

        In Java, flags inside a group, such as `(?i)`, apply to the rest of the group, even after
        `|`. Python accepts them only as a group, such as `(?i:...)`. So such a group is opened in
        each alternative that follows the flags.
        """
        outer = self._ignores_case
        flags: list[str] = []
        parts: list[str] = []
        while self._index < len(self._text) and self._text[self._index] != ")":
            if self._text[self._index] == "|":
                self._index += 1
                parts += [")" * len(flags), "|", *flags]
            elif (match := _FLAGS.match(self._text, self._index)) and match[3] == ")":
                flags.append(self._flags(match))
                parts.append(flags[-1])
            else:
                parts.append(self._item())
        self._ignores_case = outer
        return "".join(parts) + ")" * len(flags)

    def _flags(self, match: re.Match[str]) -> str:
        on, off = ((match[n] or "").translate(_IGNORED_FLAGS) for n in (1, 2))
        if set(on + off) - set("ims"):
            raise self._refused(match[0])
        self._index = match.end()
        self._ignores_case = (self._ignores_case or "i" in on) and "i" not in off
        return f"(?{on}{'-' if off else ''}{off}:"

    def _item(self) -> str:
        char = self._text[self._index]
        if char == "(":
            return self._group()
        if char == "[":
            self._index += 1
            return _emit(self._class())
        if char == "\\":
            return self._escape()
        self._index += 1
        return char

    def _group(self) -> str:
        before = self._ignores_case
        if match := _FLAGS.match(self._text, self._index):
            opening = self._flags(match)
        elif match := re.compile(r"\((?:\?(?:<([a-zA-Z]\w*)>|<?[=!]|>))?").match(
            self._text, self._index
        ):
            self._index = match.end()
            opening = f"(?P<{match[1]}>" if match[1] else match[0]
        result = opening + self._alternatives()
        if self._text[self._index] != ")":
            raise self._refused("(")
        self._index += 1
        self._ignores_case = before
        return result + ")"

    # --- escapes ---------------------------------------------------------------------------------

    def _escape(self) -> str:
        rest = self._text[self._index + 1 :]
        if rest[0] == "Q":
            literal, end, _ = rest[1:].partition("\\E")
            self._index += 2 + len(literal) + len(end)
            return re.escape(literal)
        if match := re.match(r"k<([a-zA-Z]\w*)>", rest):
            self._index += 1 + match.end()
            return f"(?P={match[1]})"
        for java, python in (("b{", None), ("z", r"\Z"), ("Z", r"\Z"), ("A", r"\A"), ("b", r"\b")):
            if rest.startswith(java):
                if python is None:
                    raise self._refused(r"\b{")
                self._index += 1 + len(java)
                return python
        if rest[0] == "B" or rest[0] in "123456789":
            self._index += 2
            return "\\" + rest[0]
        self._index += 1
        chars = self._escaped()
        return re.escape(chars) if isinstance(chars, str) else _emit(chars)

    def _escaped(self) -> str | frozenset[str]:
        """Return the character or, for a class such as `\\d`, the set that an escape stands for.

        The backslash was read already.
        """
        char = self._text[self._index]
        if match := _PROPERTY.match(self._text, self._index):
            self._index = match.end()
            chars = self._fold(self._property(match[1] or match[2]))
            return _NAME - chars if char == "P" else chars
        if (match := _HEX.match(self._text, self._index)) or (
            match := _OCTAL.match(self._text, self._index)
        ):
            self._index = match.end()
            digits = next(group for group in match.groups() if group)
            return chr(int(digits, 8 if match.re is _OCTAL else 16))
        self._index += 1
        if char.lower() in _ESCAPES:
            chars = _ESCAPES[char.lower()]
            return chars if char.islower() else _NAME - chars
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "R":
            return _NONE
        if char.isalnum():
            raise self._refused(f"\\{char}")
        return char

    def _property(self, name: str) -> frozenset[str]:
        plain = name.lower()
        chars = _UNCASED.get(plain, _UNCASED.get(_PREFIXES.sub("", plain)))
        if chars is None:
            raise self._refused(f"\\p{{{name}}}")
        return chars

    # --- classes ---------------------------------------------------------------------------------

    def _class(self) -> frozenset[str]:
        """Return the characters of a class such as `[a-z&&[^b]]`. Its `[` was read already."""
        negated = self._text[self._index] == "^"
        self._index += negated
        operands: list[frozenset[str]] = []
        union: frozenset[str] = _NONE
        is_empty = True
        while self._text[self._index] != "]" or (is_empty and not operands):
            if self._text.startswith("&&", self._index):
                self._index += 2
                operands.append(union)
                union, is_empty = _NONE, True
                continue
            union |= self._member()
            is_empty = False
        self._index += 1
        if not is_empty:
            operands.append(union)
        result = frozenset.intersection(*operands)
        return _NAME - result if negated else result

    def _member(self) -> frozenset[str]:
        """Read the next character, range or nested class of a class. Return its characters."""
        if self._text[self._index] == "[":
            self._index += 1
            return self._class()
        first = self._char()
        if not isinstance(first, str):
            return first
        following = self._text[self._index : self._index + 2]
        if following[:1] != "-" or following[1:] in ("]", "[", ""):
            return self._fold(frozenset(first) & _NAME)
        self._index += 1
        last = self._char()
        if not isinstance(last, str) or last < first:
            raise self._refused(f"{first}-")
        return self._fold(frozenset(char for char in _NAME if first <= char <= last))

    def _char(self) -> str | frozenset[str]:
        char = self._text[self._index]
        if self._text.startswith(r"\Q", self._index):
            raise self._refused(r"[\Q")
        self._index += 1
        return self._escaped() if char == "\\" else char

    def _fold(self, chars: frozenset[str]) -> frozenset[str]:
        """Return the set with both cases of its characters if the flag `i` is on.

        Otherwise return the set unchanged.
        """
        if not self._ignores_case:
            return chars
        return chars | {char.swapcase() for char in chars}

    def _refused(self, part: str) -> ConfigError:
        return ConfigError(
            f"`subscribePattern` {self._text!r} cannot be used here, because {part} at position "
            f"{self._index} has no counterpart in Python's regular expressions."
        )


def _emit(chars: frozenset[str]) -> str:
    if not chars:
        return r"[^\s\S]"  # matches nothing
    return f"[{''.join(map(re.escape, sorted(chars)))}]"
