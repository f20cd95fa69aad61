"""The page as one HTML document, with a Content-Security-Policy that allows only its own code."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class HtmlPage(NamedTuple):
    """The page as HTML, and the value of its Content-Security-Policy header."""

    body: bytes
    policy: str


@cache
def html_page() -> HtmlPage:
    """Return the page. Its style and scripts are inline, and the policy allows them by hash."""
    style = _read("page.css")
    script = "".join(_read(name) for name in ("charts.js", "page.js"))
    body = _read("page.html").replace("/*style*/", style).replace("/*script*/", script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return HtmlPage(body.encode(), policy)


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
