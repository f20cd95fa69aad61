"""The options of a member of a KIP-848 group."""

from dataclasses import dataclass

from asyncconsumer.config.validation import whole_number
from asyncconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The options of one KIP-848 membership, with the names of Kafka's own options.

    The coordinator sets the session timeout. `session_timeout_ms` is assumed if it is unknown.
    `rebalance_timeout_ms` limits how long this member may take to revoke partitions.
    """

    group_id: str
    group_instance_id: str | None = None
    group_remote_assignor: str | None = None
    rebalance_timeout_ms: int = 300_000
    client_rack: str = ""
    exclude_internal_topics: bool = True
    """Whether a pattern leaves out Kafka's internal topics."""
    session_timeout_ms: int = 45_000

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ConfigError("`group_id` is empty; set the name of the group")
        if self.group_instance_id == "":
            raise ConfigError("`group_instance_id` is empty; set a name, or leave it out")
        for name in ("rebalance_timeout_ms", "session_timeout_ms"):
            whole_number(name, getattr(self, name), 1)
