"""Write docs/file-map.md, the list of all modules: `python docs/file_map.py`."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "asyncconsumer"
TARGET: Final = ROOT / "docs" / "file-map.md"

_TITLE: Final = """\
# File map

All modules of the package, with the first sentence of each module's docstring.
`python docs/file_map.py` writes this page.
"""


def file_map() -> str:
    """Return the page with a section for each package."""
    folders = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        folders[path.parent].append(path)
    return "\n".join([_TITLE, *(_section(folder, folders[folder]) for folder in sorted(folders))])


def _section(folder: Path, modules: list[Path]) -> str:
    """Return the heading of a package, its description, and the table of its modules."""
    lines = [f"## {folder.relative_to(ROOT)}/", ""]
    rows = []
    for path in modules:
        if path.name == "__init__.py":
            lines += [_summary(path), ""]
        else:
            rows.append(f"| `{path.name}` | {_summary(path)} |")
    if rows:
        lines += ["| module | contents |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return (sentence + stop.strip()).replace("|", r"\|").replace("``", "`")


if __name__ == "__main__":
    TARGET.write_text(file_map(), encoding="utf-8")
