"""The preferred replica of one partition, in the client's rack (KIP-392)."""

import asyncio
from math import inf
from typing import Final

_REPLICA_SECONDS: Final = 300.0  # then the leader is asked again for a preferred replica
_SHUN_SECONDS: Final = 30.0  # reading from the leader after a replica failed


class PreferredReplica:
    """The replica that one partition is read from; `node_id` is None for the leader."""

    def __init__(self, rack: str) -> None:
        self.node_id: int | None = None
        self._rack = rack
        self._until = -inf  # end of reading from the replica, or of avoiding replicas

    @property
    def rack(self) -> str:
        """Return the rack to send to the leader, or "" while replicas are avoided."""
        return "" if self.node_id is None and _now() < self._until else self._rack

    @property
    def is_over(self) -> bool:
        """Return whether to ask the leader again for a preferred replica."""
        return self.node_id is not None and _now() >= self._until

    def follow(self, node_id: int) -> None:
        """Read from the replica that the leader named, until it fails or expires."""
        self.node_id, self._until = node_id, _now() + _REPLICA_SECONDS

    def ask_again(self) -> None:
        """Read from the leader, unless it names a replica."""
        self.node_id, self._until = None, -inf

    def leave(self) -> bool:
        """Read from the leader for a while. Return False if no replica was in use.

        The leader does not notice that the replica fails, and would redirect to it again.
        """
        if self.node_id is None:
            return False
        self.node_id, self._until = None, _now() + _SHUN_SECONDS
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
