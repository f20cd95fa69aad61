"""The recognition of options with secret values, and their redaction."""

import re
from typing import Final

REDACTED: Final = "(redacted)"
_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|secret|jaas|token|credential|private\.?key"
    r"|(^|\.)(auth|sasl|key|pem|pin)$"
)
_NOT_SECRET: Final = ("token.endpoint.url", "client.credentials.client.id")
_BASE64_KEY: Final = re.compile(r"M[A-Za-z0-9+/=]{50,}")  # a PEM string without its first line
_PATH_OR_PEM: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


def is_secret(name: str) -> bool:
    """Return whether the name of an option suggests that its value is secret.

    The option need not exist.
    """
    plain = re.sub("[_-]", ".", name.lower())
    return not plain.endswith(_NOT_SECRET) and _SECRET.search(plain) is not None


def redacted(name: str, value: object) -> object:
    """Return the value of an option, or a placeholder if it is or may be a secret.

    The text of a certificate or key is replaced too, because it may contain a private key.
    """
    if value is None:
        return None
    if is_secret(name) or (name in _PATH_OR_PEM and not is_path(str(value))):
        return REDACTED
    return value


def is_path(text: str) -> bool:
    """Return whether `text`, the value of an option, is a path and not a PEM string or a key."""
    is_pem = "-----" in text or _BASE64_KEY.fullmatch(text) is not None
    return len(text) < 256 and text.isprintable() and not is_pem
