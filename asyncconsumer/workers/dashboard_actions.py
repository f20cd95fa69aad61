"""Pause, resume and replay from the dashboard of `asyncconsumer run`, in all workers."""

from typing import Final

from asyncconsumer.dashboard.actions import Actions
from asyncconsumer.errors import ConfigError
from asyncconsumer.workers.supervisor import Supervisor


class WorkerActions:
    """The actions of the dashboard on the workers of a supervisor.

    `replay` replays dead letters. It is None if the connection to the cluster is not known.
    """

    def __init__(self, supervisor: Supervisor, replay: Actions | None) -> None:
        self._supervisor: Final = supervisor
        self._replay: Final = replay

    @property
    def available(self) -> tuple[str, ...]:
        """The names of the actions: "pause", "resume", and "replay" if it is possible."""
        return ("pause", "resume", *(() if self._replay is None else self._replay.available))

    @property
    def paused(self) -> tuple[str, ...]:
        """The topics that are paused in all workers."""
        return tuple(sorted(self._supervisor.paused_topics))

    async def perform(self, name: str, topic: str) -> str:
        """Perform the action `name` on a topic: "pause" or "resume" in all workers, or "replay".

        Return a text about what was done.
        """
        if name not in ("pause", "resume") and self._replay is not None:
            return await self._replay.perform(name, topic)
        paused, statuses = self._supervisor.paused_topics, self._supervisor.status_by_worker()
        if topic not in paused and not any(topic in status.lag for status in statuses.values()):
            raise ConfigError(f"No worker reads {topic!r} now.")
        if name == "pause":
            self._supervisor.pause_only(paused | {topic})
            return f"Paused {topic} in {len(statuses)} workers."
        self._supervisor.pause_only(paused - {topic})
        return f"Resumed {topic} in {len(statuses)} workers."
