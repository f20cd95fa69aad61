"""A constraints file with the oldest version of each dependency that pyproject.toml allows."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"


def requirements() -> list[str]:
    """Return the requirements of the package and of its extras, without those on itself."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    own = f"{project['name']}["
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    return sorted({text for text in texts if not text.startswith(own)})


def constraints(requirements: Iterable[str]) -> Iterator[str]:
    """Yield one constraint for each package: exactly its lower bound, without extras.

    Of several lower bounds the newest counts, because tests may need more than users do.
    """
    bounds: dict[str, str] = {}
    for text in requirements:
        match = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", text)
        if match is None:
            raise ValueError(f"the requirement {text!r} has no lower bound")
        bounds[match[1]] = max(bounds.get(match[1], "0"), match[2], key=_numbers)
    for name, version in bounds.items():
        yield f"{name}=={version}"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


if __name__ == "__main__":
    print(*constraints(requirements()), sep="\n")  # noqa: T201
