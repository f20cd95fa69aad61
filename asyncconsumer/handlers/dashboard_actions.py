"""The actions of the dashboard: the replay of dead letters, and the pause and resume of an app."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, Protocol

from asyncconsumer.config import ConnectionConfig, ConsumerConfig
from asyncconsumer.consumer.consumer import Consumer
from asyncconsumer.dashboard.dead_letter_topics import is_dead_letter_topic
from asyncconsumer.dashboard.sites import site_of_consumer
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.dead_letter_queue import DeadLetterFilter, DeadLetterQueue
from asyncconsumer.web.pages import Asgi
from asyncconsumer.web.status import Status

_AT_ONCE: Final = 500  # records sent before they are marked as done
_LIMIT: Final = 10_000

OptionsSource = Callable[[], Mapping[str, Any]]
"""A function that returns the options of a connection."""


class ReplayActions:
    """The dashboard's action that replays all dead letters of a topic."""

    available: Final = ("replay",)
    paused: Final[tuple[str, ...]] = ()

    def __init__(self, options: OptionsSource, topics: frozenset[str] = frozenset()) -> None:
        self._options = options
        self._topics = topics

    async def perform(self, name: str, topic: str) -> str:
        """Send the dead letters of a topic back to the topics that they came from.

        Return a text with the number of records sent. `name` is ignored, because replay is the only
        action. Raise ConfigError if `topic` is not a dead letter topic.
        """
        del name
        if topic not in self._topics and not is_dead_letter_topic(topic):
            raise ConfigError(f"{topic!r} is not a dead letter topic.")
        async with DeadLetterQueue(topic, **self._options()) as queue:
            dead_letters = await queue.read(DeadLetterFilter(), limit=_LIMIT)
            for start in range(0, len(dead_letters), _AT_ONCE):
                block = dead_letters[start : start + _AT_ONCE]
                await queue.send(block)
                await queue.finish(block)
        return f"Sent back {len(dead_letters)} dead letters of {topic}."


class DashboardApp(Protocol):
    """The methods of an app that its dashboard calls."""

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads for the handlers."""

    @property
    def dead_letter_topics(self) -> set[str]:
        """The topics that the handlers write dead letters to."""

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics that are paused by name."""

    def reads(self, topic: str) -> bool:
        """Return whether a handler reads this topic."""

    def pause(self, *topics: str) -> None:
        """Start no handler calls for records of these topics."""

    def resume(self, *topics: str) -> None:
        """Start handler calls for records of these topics again."""

    def status_by_worker(self) -> Mapping[str, Status]:
        """Return the status of each worker process by name, for the pages of the dashboard."""


class AppActions:
    """The actions on an app of this process: pause, resume and replay."""

    available: Final = ("pause", "resume", "replay")

    def __init__(self, app: DashboardApp, replay: ReplayActions) -> None:
        self._app = app
        self._replay = replay

    @property
    def paused(self) -> tuple[str, ...]:
        """The topics that are paused."""
        return tuple(sorted(self._app.paused_topics))

    async def perform(self, name: str, topic: str) -> str:
        """Perform the action `name` on a topic. Return a text about what was done."""
        if name == "replay":
            return await self._replay.perform(name, topic)
        if not self._app.reads(topic):
            raise ConfigError(f"No handler of this app reads {topic!r}.")
        if name == "pause":
            self._app.pause(topic)
            return f"Paused {topic} in this process."
        self._app.resume(topic)
        return f"Resumed {topic} in this process."


def site_of_app(app: DashboardApp, config: ConsumerConfig, http_hosts: Iterable[str]) -> Asgi:
    """Return the ASGI app of the dashboard for the cluster of an app, with actions on the app.

    `http_hosts` are names, besides localhost, by which browsers may reach the dashboard.
    """

    def options() -> dict[str, Any]:
        connection, known = app.consumer.connection, fields(ConnectionConfig)
        return {field.name: getattr(connection, field.name) for field in known if field.init}

    topics = frozenset(app.dead_letter_topics)
    actions = AppActions(app, ReplayActions(options, topics))
    return site_of_consumer(config, app.status_by_worker, http_hosts, actions, topics)
