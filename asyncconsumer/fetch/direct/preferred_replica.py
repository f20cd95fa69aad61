"""The replica in our rack, which a leader may send its readers to (KIP-392)."""

import asyncio
from math import inf
from typing import Final

_REPLICA_SECONDS: Final = 300.0  # then the leader is asked again which replica is near
_SHUN_SECONDS: Final = 30.0  # that the leader itself is read after a replica failed us


class PreferredReplica:
    """Where one partition is read in place of its leader: `node_id`, or None for the leader."""

    def __init__(self, rack: str) -> None:
        self.node_id: int | None = None
        self._rack = rack
        self._until = -inf  # that the replica is read; without one, that none is wanted

    @property
    def rack(self) -> str:
        """To tell the leader; none while it shall not send us anywhere."""
        return "" if self.node_id is None and _now() < self._until else self._rack

    @property
    def is_over(self) -> bool:
        """Whether to ask the leader again which replica is near."""
        return self.node_id is not None and _now() >= self._until

    def follow(self, node_id: int) -> None:
        """Read from the replica that the leader named, until something fails or time is over."""
        self.node_id, self._until = node_id, _now() + _REPLICA_SECONDS

    def ask_again(self) -> None:
        """Read from the leader, unless it names a replica."""
        self.node_id, self._until = None, -inf

    def leave(self) -> bool:
        """Read the leader itself for a while; False if that is what we do.

        It finds nothing wrong with the replica, and would send us there again.
        """
        if self.node_id is None:
            return False
        self.node_id, self._until = None, _now() + _SHUN_SECONDS
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
