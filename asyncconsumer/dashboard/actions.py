"""Changes that the dashboard can make with a token: pause, resume and replay."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from asyncconsumer.errors import ConfigError


class Actions(Protocol):
    """The changes that a process can make for its dashboard. `available` has their names."""

    @property
    def available(self) -> tuple[str, ...]:
        """The names of the actions."""

    @property
    def paused(self) -> tuple[str, ...]:
        """The topics that are paused in this process."""

    async def perform(self, name: str, topic: str) -> str:
        """Perform the action `name` on a topic. Return a text about what was done."""


class NoActions:
    """The actions of a process that can change nothing."""

    available: Final[tuple[str, ...]] = ()
    paused: Final[tuple[str, ...]] = ()

    async def perform(self, name: str, topic: str) -> str:
        """Raise an error, because there are no actions."""
        raise ConfigError(f"The action {name!r} on {topic!r} is not available here.")


def topic_of(body: Mapping[str, Any]) -> str:
    """Return the topic that the body of a request names. Raise an error if it names none."""
    topic = body.get("topic")
    if not isinstance(topic, str) or not topic:
        raise ConfigError('The body must be JSON such as {"topic": "orders"}.')
    return topic
