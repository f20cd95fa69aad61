"""Checks of names and prose: Kafka's and asyncio's vocabulary, in plain English."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.fast

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PACKAGE = ROOT / "asyncconsumer"
MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = ("asyncconsumer", "benchmarks", "examples", "tests")
SOURCES = sorted(
    {ROOT / "setup.py", *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))}
    - {Path(__file__)}  # this module has to name the retired words
)
GENERATED = ROOT / "docs" / "file-map.md"  # has docstrings, which are checked in their modules
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")} - {GENERATED})
NATIVE = sorted((PACKAGE / "records" / "_native").iterdir())
CODE_SUFFIXES = (".c", ".css", ".h", ".java", ".js")
OTHER_FILES = sorted(
    path
    for pattern in (
        "Makefile",
        "*.toml",
        "*.txt",
        "*.y*ml",
        ".github/**/*.yml",
        "asyncconsumer/dashboard/*.css",
        "asyncconsumer/dashboard/*.html",
        "asyncconsumer/dashboard/*.js",
        "asyncconsumer/records/_native/*",
        "asyncconsumer/testing/servers/programs/*",
        "ops/*",
    )
    for path in ROOT.glob(pattern)
)
"""Files that are neither Python nor Markdown."""

CODE_TEXT: Final = re.compile(
    r"""(?xs) /\*.*?\*/ | //[^\n]* | (?: "(?:\\.|[^"\\\n])*" \s* )+
        | '(?:\\.|[^'\\\n])*' | `(?:\\.|[^`\\])*`"""
)
"""A comment or string literal of C, CSS, Java or JavaScript. Adjacent literals are one text."""

RETIRED_IDENTIFIERS: Final = frozenset(
    {
        "Around", "Assigning", "Blob", "Cargo", "Collecting", "Connected", "Conversation",
        "Everywhere", "Gathered", "Given", "GivenUp", "Ground", "InWork", "Lifeline", "Nearby",
        "Nearness", "NotYet", "OUTSIDER", "OneByOne", "Outside", "Pace", "Parked", "Patience",
        "Placing", "Steering", "Surroundings", "Taking", "Travelling", "Tried", "Welcome", "Worked",
        "accel", "be_nobody", "bear", "breakable", "companions_of", "deserializer_of", "doubt",
        "embedding", "failed_by", "fare_well", "give_way", "heed", "heeded_by", "homeless",
        "in_hand", "is_worker", "keep_back", "last_sign", "learn_end", "learn_seeds",
        "look_again", "max_blocked_ms", "max_inflated_bytes", "nobody_knows", "polls_for_nobody",
        "put_aside",
        "reluctance", "rung", "send_home", "settle_down", "sign_of_life", "still_has", "stir",
        "suffer", "take_up", "that_tell_sizes", "those_there", "told_by", "told_of", "truth_of",
        "turned_away", "waits_for_share", "whole_of", "wish_of",
    }
)  # fmt: skip
"""Identifiers of an older vocabulary. The glossary in DESIGN.md has the current terms."""

RETIRED_PARTS: Final = re.compile(
    r"anew|bells?|companions?|flights?|heard|homeless|lanes?|letters?|ours|standing|suffers?"
    r"|told|whoever|wish|wishes"
)
"""Words that no part of an identifier may be."""

HEADLESS_TEST_NAME: Final = re.compile(
    r"""(?x) ^test_ (?:
        (?: it | its | one_that | ones | our | they | those | us | we ) (?=_|$)
        | (?:\w+_)? (?: anybody | behind | comes?_again | damaged? | goes?_on | lets?_go
            | makes?_(?:no_)?sense | mends? | nobody | nonsense | so_many | somebody | tells?
            | what | whatever | who | whom ) (?=_|$)
    )"""
)
"""Words without a noun in the name of a test, and phrases that hide the tested behaviour."""

ALLOWED_TERMS: Final = re.compile(r"(?i)dead_?letters?|in_?flight|ascii_letters")
"""Terms of Kafka and of Python that contain a retired word."""

OF_THE_ALPHABET: Final = ("cli/consume/command.py", "cli/consume/format.py", "regex_parser.py")
"""Modules in which a letter is a letter of the alphabet."""

TYPE_ALIAS: Final = re.compile(
    r"(?P<name>_?[A-Z]\w*[a-z]\w*)(: TypeAlias)? = (?!Annotated\[|TypeVar\(|ParamSpec\()"
)

FILLER_NAMES: Final = frozenset(
    {"at", "found", "given", "kept", "left", "most", "one", "there", "told", "wanted", "who"}
)
"""Names of variables, parameters and attributes that say nothing about the value."""
VAGUE_NAMES: Final = FILLER_NAMES | {
    "gone", "got", "had", "have", "here", "how", "mine", "said", "some", "then", "thing", "things",
    "what", "where", "which",
}  # fmt: skip
"""The same for the package, whose names are to be understood without a test around them."""

RETIRED_WORDS: Final = re.compile(
    r"""(?ix) \b (
        anew | bells? | comes?\ again | companions? | damage[ds]? | for\ who
        | (?<!in\ )(?<!in-) flights? | giv(?:e|es|ing)\ way | hears? | heard | homeless | in\ hand
        | lanes? | lets?\ go | letting\ go | (?<!dead\ )(?<!dead-)(?<!two\ ) letters? (?!,\ digits)
        | our | ours | ourselves | signs?\ of\ life | so\ many | standing | suffers? | told | we
        | (?<!(?:user|eone|yone|ople|tors|ader)\ )(?<!users\ )who | whoever | wish | wishes
    ) \b | \b (?<!\d\ )(?<!\[) (?-i:us) \b """
)
"""Words that no docstring, comment, message or document may contain."""

RETIRED_STARTS: Final = re.compile(
    r"(?:All (?:that|of it)|Also|And|As above|But|How|It|Its|Nobody|Not|Nothing|So many|Such"
    r"|That|The same|Them|These|They|This|Those|What|Where|Which|Who|Whoever|Whom|Whose)\b"
    r"(?! (?:class|function|method|module|package)\b)"
)
"""Starts of docstrings that do not stand alone: pronouns and relatives without a noun."""


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


@cache
def tokens(source: str) -> tuple[tuple[int, str], ...]:
    """Return the type and the text of the names and comments."""
    return tuple(
        (token.type, token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.NAME, tokenize.COMMENT)
    )


def type_names(source: str) -> Iterator[str]:
    """Yield the names of classes and type aliases, without leading underscores.

    A command-line option (`Annotated`) and a type variable are no type aliases.
    """
    for node in nodes(source):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
    for node in ast.parse(source).body:
        is_assignment = isinstance(node, ast.Assign | ast.AnnAssign)  # other nodes are large
        if is_assignment and (alias := TYPE_ALIAS.match(ast.unparse(node))):
            yield alias["name"].lstrip("_")


def silent_predicates(source: str) -> Iterator[str]:
    """Yield the functions that are named as predicates and return None."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            asks = node.name.lstrip("_").startswith(("is_", "has_"))
            returns = node.returns
            if asks and isinstance(returns, ast.Constant) and returns.value is None:
                yield node.name


def docstring_starts(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that start with a pronoun or a headless relative."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in nodes(source):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        if text and RETIRED_STARTS.match(text):
            yield text.splitlines()[0]


def comments(source: str) -> Iterator[str]:
    return (text for kind, text in tokens(source) if kind == tokenize.COMMENT)


def texts(source: str) -> Iterator[str]:
    """Yield docstrings, messages and comments. A string without a space is no prose."""
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value
    yield from comments(source)


def code_texts(source: str) -> Iterator[str]:
    """Yield comments and string literals. A string without a space is no prose."""
    for text in CODE_TEXT.findall(source):
        prose = re.sub(r'"\s*"|\\n|\n\s*\*', " ", text).strip("`'\"")
        if text.startswith("/") or " " in prose:
            yield prose


def other_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file that is neither Python nor Markdown."""
    source = path.read_text(encoding="utf-8")
    if path.suffix in CODE_SUFFIXES:
        yield from code_texts(source)
    else:  # paragraphs, so that a backquote does not hide the rest of the file
        yield from re.sub(r"\n\s*#", "\n", source).split("\n\n")


def retired_words(text: str) -> Iterator[str]:
    """Yield retired words with the text around them. Code in backquotes is left out."""
    prose = " ".join(re.sub(r"(`+).*?\1", "``", text, flags=re.DOTALL).split())
    for match in RETIRED_WORDS.finditer(prose):
        yield f"{match[0]!r} in {prose[max(0, match.start() - 30) : match.end() + 30]!r}"


def prose(source: str) -> Iterator[str]:
    for text in texts(source):
        yield from retired_words(text)


def identifiers(source: str) -> Iterator[str]:
    """Yield identifiers that are retired, or that have a retired word in them."""
    yield from retired_names({text for kind, text in tokens(source) if kind == tokenize.NAME})


def code_identifiers(source: str) -> Iterator[str]:
    """Yield the same for a source in C."""
    yield from retired_names(set(re.findall(r"[A-Za-z_]\w*", CODE_TEXT.sub(" ", source))))


def retired_names(names: set[str]) -> Iterator[str]:
    for name in sorted(names):
        parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", ALLOWED_TERMS.sub("_", name))
        is_retired = name.lstrip("_") in RETIRED_IDENTIFIERS
        if is_retired or any(map(RETIRED_PARTS.fullmatch, map(str.lower, parts))):
            yield name


def fillers(source: str, names: frozenset[str] = FILLER_NAMES) -> Iterator[str]:
    """Yield the filler names that are assigned, or that are parameters or attributes."""
    for node in nodes(source):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if name.lstrip("_") in names:
            yield f"{name}, line {node.lineno}"


def headless_test_names(source: str) -> Iterator[str]:
    """Yield the names of tests that do not name their subject."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    names = (node.name for node in nodes(source) if isinstance(node, functions))
    yield from filter(HEADLESS_TEST_NAME.search, names)


CHECKS: Final[dict[str, Callable[[str], Iterator[str]]]] = {
    "docstring starts": docstring_starts,
    "prose": prose,
    "identifiers": identifiers,
    "filler names": fillers,
    "names of tests": headless_test_names,
}


def findings(check: Callable[[str], Iterator[str]]) -> list[str]:
    result = []
    for path in SOURCES:
        of_the_alphabet = str(path).endswith(OF_THE_ALPHABET)
        for finding in check(path.read_text(encoding="utf-8")):
            if of_the_alphabet and finding.strip("_").lower() in ("letter", "letters"):
                continue
            result.append(f"{path.relative_to(ROOT)}: {finding}")
    return result


@pytest.mark.parametrize("name", CHECKS)
def test_language(name: str) -> None:
    assert findings(CHECKS[name]) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_no_retired_word(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    before, _, glossary = text.partition("## Glossary\n")
    current = re.sub(r"\|[^|\n]*\|$", "|", glossary, flags=re.MULTILINE)  # without former terms
    assert list(retired_words(before + current)) == []


@pytest.mark.parametrize("path", OTHER_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_other_files_have_no_retired_word(path: Path) -> None:
    assert [finding for text in other_texts(path) for finding in retired_words(text)] == []


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_c_sources_have_no_retired_identifier(path: Path) -> None:
    assert list(code_identifiers(path.read_text(encoding="utf-8"))) == []


def test_names_in_the_package_are_nouns() -> None:
    vague = [
        f"{path.relative_to(PACKAGE)}: {finding}"
        for path in MODULES
        for finding in fillers(path.read_text(encoding="utf-8"), VAGUE_NAMES)
    ]
    assert vague == []


def test_no_name_of_a_type_is_defined_twice() -> None:
    modules = defaultdict(list)
    for path in MODULES:
        if not path.is_relative_to(PACKAGE / "testing"):
            for name in type_names(path.read_text(encoding="utf-8")):
                modules[name].append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


def test_predicates_return_a_value() -> None:
    result = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in MODULES
        for name in silent_predicates(path.read_text(encoding="utf-8"))
    }
    assert result == set()


def test_the_checks_detect_violations() -> None:
    source = (
        '"""What is here."""\n'
        "class A: ...\nclass _A: ...\nRows = list[int]\nLimit = Annotated[int, 1]\nVALUE = 1\n"
        "def is_done() -> None:\n"
        '    """It is told so, `told` apart."""\n'
        "    give_way()  # for who waits in flight\n"
        "class DeadLetter:\n"
        '    """This class is fine, a user who reads it as well, and so are dead letters."""\n'
        "    letterOfOurs, one, in_flight, told_us = (), 1, 'told', 'we said so'\n"
    )
    code = (
        '/* `told` apart, here is what\n * we know: */ bool told = puts("It lets "\n'
        " \"go\", 'us'); // the companions, in flight\nint lanes;\n"
    )
    assert list(type_names(source)) == ["A", "A", "DeadLetter", "Rows"]
    assert list(silent_predicates(source)) == ["is_done"]
    assert list(docstring_starts(source)) == ["What is here.", "It is told so, `told` apart."]
    assert [found.split()[0] for found in prose(source)] == ["'told'", "'we'", "'for"]
    assert [
        found.split(" in ")[0] for text in code_texts(code) for found in retired_words(text)
    ] == ["'we'", "'lets go'", "'companions'"]
    assert list(identifiers(source)) == ["give_way", "letterOfOurs", "told_us"]
    assert list(code_identifiers(code)) == ["lanes", "told"]
    assert list(fillers(source)) == ["one, line 12"]
    assert list(headless_test_names("def test_what_is_lost(): ...")) == ["test_what_is_lost"]
    assert list(headless_test_names("def test_it_leaves(): ...")) == ["test_it_leaves"]
    assert list(headless_test_names("def test_whose_item_it_has(): ...")) == []
