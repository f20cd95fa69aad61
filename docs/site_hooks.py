"""Hooks of mkdocs: pages from files outside of docs/, generated references, and diagrams."""

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any, Final

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import api_pages, errors_page, options_page

ROOT: Final = Path(__file__).parents[1]
DIAGRAMS: Final = ROOT / "build" / "diagrams"
"""Rendered diagrams, by the hash of their source. Rendering takes a second or more for each."""

PAGES: Final = tuple(
    f"{name}.md"
    for name in ("README", "DESIGN", "CHANGELOG", "CONTRIBUTING", "RELEASING", "SECURITY")
)
"""Pages of the site that are at the root of the repository."""

CODE_PAGES: Final = {
    "examples": ("Examples", "Complete programs. The tests run each of them on real servers."),
    "ops": ("Files of ops", "Files that run an app in containers, and watch it."),
}
"""Folders of the repository that become a page with all of their files."""

PICTURE: Final = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)
"""A picture for both color schemes. On the site the scheme of the page selects one."""

LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".yml": "yaml", "": "dockerfile"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in docs/ to the site."""
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    for folder, (title, text) in CODE_PAGES.items():
        _add_code_page(files, config, folder, title, text)
    files.append(File.generated(config, "LICENSE", abs_src_path=str(ROOT / "LICENSE")))
    generated = {
        "reference/options.md": options_page(),
        "reference/errors.md": errors_page(),
        **api_pages(),
    }
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    return files


def _add_code_page(files: Files, config: MkDocsConfig, folder: str, title: str, text: str) -> None:
    """Add a page with the files of a folder, and the files themselves for links to them."""
    sections = [f"# {title}\n\n{text}\n"]
    for path in sorted((ROOT / folder).iterdir()):
        if not path.is_file() or path.name == "__init__.py":
            continue
        target = f"{folder}/{path.name}"
        files.append(File.generated(config, target, abs_src_path=str(path)))
        language = LANGUAGES.get(path.suffix)
        if language is not None:
            code = path.read_text("utf-8").rstrip()
            sections.append(f"## {path.name}\n\n```{language}\n{code}\n```\n")
        elif path.suffix == ".json":
            sections.append(f"## {path.name}\n\n[{path.name}]({target})\n")
    files.append(File.generated(config, f"{folder}.md", content="\n".join(sections)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with links adapted to the site, and with diagrams drawn.

    Files of the repository's root, to which pages link, are pages of the site as well.
    """
    if page.file.src_uri in (*PAGES, *(path.name for path in (ROOT / "docs").glob("*.md"))):
        base = "" if page.file.src_uri in PAGES else "docs"
        markdown = re.sub(
            r"(\]\(|(?:src|srcset|href)=\")([^)\"#:]+)(?=[)\"#])",
            lambda match: match[1] + _site_path(posixpath.normpath(posixpath.join(base, match[2]))),
            markdown,
        )
    markdown = PICTURE.sub(r"![\2](\3#only-light) ![\2](\1#only-dark)", markdown)
    return re.sub(r"(?s)```mermaid\n(.*?)```", lambda match: _diagram(match[1]), markdown)


def _site_path(path: str) -> str:
    """Return the path in the site of a file or folder of the repository."""
    return f"{path}.md" if path in CODE_PAGES else path.removeprefix("docs/")


def _diagram(source: str) -> str:
    """Return a diagram as an SVG element in a figure, whose colors are in site.css."""
    settings: dict[str, Any] = {
        "fontFamily": "sans-serif",
        "htmlLabels": False,
        "flowchart": {"htmlLabels": False},
        "sequence": {"actorMargin": 30, "width": 150, "wrap": True, "mirrorActors": False},
    }
    name = hashlib.sha256(f"{mermaidx.__version__}{settings}{source}".encode()).hexdigest()[:16]
    path = DIAGRAMS / f"{name}.svg"
    if not path.exists():
        DIAGRAMS.mkdir(parents=True, exist_ok=True)
        svg = mermaidx.render(source, theme="base", config=settings).svg()
        path.write_text(svg.replace("my-svg", f"diagram-{name}"), encoding="utf-8")
    svg = re.sub(r"\s*\n\s*", " ", path.read_text(encoding="utf-8"))
    return f'<figure class="diagram">{svg}</figure>\n'
