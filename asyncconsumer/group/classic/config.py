"""The options of a member of a classic group."""

from dataclasses import dataclass

from asyncconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupConfig:
    """The options of one membership in a classic group.

    A member with a `group_instance_id` is static (KIP-345).
    """

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 1_000
    client_rack: str = ""
    exclude_internal_topics: bool = True
    metadata_refresh_ms: int = 5_000
    """The interval of metadata refreshes that detect new topics and partitions."""

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ConfigError("`group_id` is empty; set the name of the group")
        if self.group_instance_id == "":
            raise ConfigError("`group_instance_id` is empty; set a name, or leave it out")
        for name in ("rebalance_timeout_ms", "heartbeat_interval_ms", "metadata_refresh_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"`{name}` is {getattr(self, name)}; it must be greater than 0")
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ConfigError(
                f"`session_timeout_ms` is {self.session_timeout_ms}; it must be at least three "
                f"times `heartbeat_interval_ms`, which is {self.heartbeat_interval_ms}"
            )
