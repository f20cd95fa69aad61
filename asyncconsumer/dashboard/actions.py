"""Changes that the dashboard can make with a token: pause, resume and replay."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from asyncconsumer.errors import ConfigError


class Actions(Protocol):
    """The changes that a process can make. A name in `available` is a method of this object."""

    @property
    def available(self) -> tuple[str, ...]:
        """The names of the actions."""

    @property
    def paused(self) -> tuple[str, ...]:
        """The topics that are paused in this process."""

    async def perform(self, name: str, topic: str) -> str:
        """Perform an action on a topic. Return what was done."""


class NoActions:
    """A process that can change nothing."""

    available: Final[tuple[str, ...]] = ()
    paused: Final[tuple[str, ...]] = ()

    async def perform(self, name: str, topic: str) -> str:
        """Refuse the action."""
        raise ConfigError(f"The action {name!r} on {topic!r} is not available here.")


def topic_of(body: Mapping[str, Any]) -> str:
    """Return the topic that a request names."""
    topic = body.get("topic")
    if not isinstance(topic, str) or not topic:
        raise ConfigError('The body must be JSON such as {"topic": "orders"}.')
    return topic
