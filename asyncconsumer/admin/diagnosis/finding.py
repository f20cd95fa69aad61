"""The result of one check by `diagnose`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from asyncconsumer.errors import BrokerConnectionError, ConsumerError

Severity: TypeAlias = Literal["ok", "warning", "error"]
"""The severity of a finding. An "error" stops a consumer, a "warning" does not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check by `diagnose`.

    `check` is the name of the check, such as "tls". `subject` is the address, topic or group.
    `advice` says what to do, and is empty if there is nothing to do.
    """

    level: Severity
    check: str
    subject: str
    message: str
    advice: str = ""

    def __str__(self) -> str:
        text = f"{self.level:8} {self.check:12} {self.subject}: {self.message}"
        return f"{text}. {self.advice}." if self.advice else text


def from_error(check: str, subject: object, error: ConsumerError, advice: str = "") -> Finding:
    """Return a finding that reports an error.

    Without `advice` it has the error's own advice, if any.
    """
    if isinstance(error, BrokerConnectionError):
        return Finding("error", check, str(subject), error.reason, advice or error.advice)
    return Finding("error", check, str(subject), str(error).rstrip("."), advice)


def first_error(findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding whose level is "error", or None."""
    return next((finding for finding in findings if finding.level == "error"), None)
