"""The system's wall clock."""

from datetime import UTC, datetime


def wall_clock_ms() -> int:
    """Return the milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)
