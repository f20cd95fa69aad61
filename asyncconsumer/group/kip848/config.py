"""The options of a member of a group of KIP-848."""

from dataclasses import dataclass

from asyncconsumer.config.validation import whole_number
from asyncconsumer.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """A member of a group of KIP-848. Names are Kafka's.

    The session timeout is the coordinator's: ``session_timeout_ms`` is what to assume where it does
    not tell. ``rebalance_timeout_ms`` is how long we may take to let go of partitions.
    """

    group_id: str
    group_instance_id: str | None = None
    group_remote_assignor: str | None = None
    rebalance_timeout_ms: int = 300_000
    client_rack: str = ""
    session_timeout_ms: int = 45_000

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ConfigError("group_id is empty: a group needs a name")
        if self.group_instance_id == "":
            raise ConfigError("group_instance_id is empty: leave it out, or give each member one")
        for name in ("rebalance_timeout_ms", "session_timeout_ms"):
            whole_number(name, getattr(self, name), 1)
