"""The options of fetches and of the fetch engine."""

from dataclasses import dataclass

from asyncconsumer.config.choices import (
    ISOLATION_LEVELS,
    OFFSET_RESETS,
    AutoOffsetReset,
    IsolationLevel,
)
from asyncconsumer.config.validation import one_of, text, whole_number
from asyncconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """The sizes and checks of fetches. `FetchOptions` describes each option.

    ``max_decompressed_bytes`` exists because a few kilobytes can decompress to gigabytes.
    """

    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 2**20
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 2**20
    isolation_level: IsolationLevel = "read_uncommitted"
    check_crcs: bool = True
    max_decompressed_bytes: int = 64 * 2**20
    client_rack: str = ""

    def __post_init__(self) -> None:
        text("client_rack", self.client_rack)
        one_of("isolation_level", self.isolation_level, ISOLATION_LEVELS)
        if not isinstance(self.check_crcs, bool):
            raise ConfigError(f"`check_crcs` must be True or False, got {self.check_crcs!r}")
        for name in ("fetch_min_bytes", "fetch_max_wait_ms"):
            whole_number(name, getattr(self, name), 0)
        for name in ("fetch_max_bytes", "max_partition_fetch_bytes", "max_decompressed_bytes"):
            whole_number(name, getattr(self, name), 1)
        if self.fetch_min_bytes > self.fetch_max_bytes:
            raise ConfigError(
                f"`fetch_min_bytes` ({self.fetch_min_bytes}) must not be more than "
                f"`fetch_max_bytes` ({self.fetch_max_bytes})"
            )

    @property
    def committed_only(self) -> bool:
        """Whether records of open and of aborted transactions are skipped."""
        return self.isolation_level == "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The options for buffers, connections, offset reset and timeouts.

    `EngineOptions` describes each option.
    """

    max_buffered_bytes: int = 32 * 2**20
    num_consumer_fetchers: int = 1
    refresh_leader_backoff_ms: int = 200
    auto_offset_reset: AutoOffsetReset = "latest"
    stall_timeout_ms: int = 10_000
    retry_timeout_ms: int | None = None
    metadata_refresh_ms: int = 5_000

    def __post_init__(self) -> None:
        one_of("auto_offset_reset", self.auto_offset_reset, OFFSET_RESETS)
        whole_number("max_buffered_bytes", self.max_buffered_bytes, 2**16)
        for name in (
            "num_consumer_fetchers",
            "refresh_leader_backoff_ms",
            "stall_timeout_ms",
            "metadata_refresh_ms",
        ):
            whole_number(name, getattr(self, name), 1)
        if self.retry_timeout_ms is not None:
            whole_number("retry_timeout_ms", self.retry_timeout_ms, 0)
