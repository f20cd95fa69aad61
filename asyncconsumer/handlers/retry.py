"""The retry policy of a handler."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from asyncconsumer.config.validation import whole_number
from asyncconsumer.errors import ConfigError

_MOST_DOUBLINGS: Final = 60


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: up to `attempts` attempts in total, for the exceptions in `on`.

    The wait before the next attempt doubles from `backoff_ms` to `max_backoff_ms`. A random factor
    changes it by up to the fraction `jitter`, so that retries of records that failed together are
    spread out. Later records of the same key, or partition, wait as well, according to `ordering`.

    With a `topic`, failed records wait in that retry topic, at least `delay_ms` before each
    attempt. The source partition continues and is committed meanwhile. The retry topic needs at
    least as many partitions as the source topic. Later records of a waiting key wait there, too.

    `topic` can be a mapping of several retry topics to their delays in milliseconds, such as
    ``{"orders.retry.1s": 1_000, "orders.retry.1h": 3_600_000}``. The first failure writes a record
    to the first topic, the next one to the second topic, and so on.
    """

    attempts: int = 3
    backoff_ms: int = 100
    max_backoff_ms: int = 30_000
    jitter: float = 0.2
    on: tuple[type[Exception], ...] = (Exception,)
    topic: str | Mapping[str, int] | None = None
    delay_ms: int = 10_000

    def __post_init__(self) -> None:
        whole_number("attempts", self.attempts, 1)
        whole_number("backoff_ms", self.backoff_ms, 0)
        whole_number("max_backoff_ms", self.max_backoff_ms, self.backoff_ms)
        whole_number("delay_ms", self.delay_ms, 0)
        self._check_topics()
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"`jitter` must be from 0 to 1, got {self.jitter!r}")
        kinds: object = self.on
        if isinstance(kinds, type):
            object.__setattr__(self, "on", (kinds,))
        if not isinstance(self.on, tuple):
            raise ConfigError(f"`on` must be a tuple of kinds of Exception, got {kinds!r}")
        every: tuple[object, ...] = self.on
        for kind in every:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ConfigError(f"`on` must have kinds of Exception, got {kind!r}")

    def _check_topics(self) -> None:
        topics: object = self.topic
        if topics is not None and not isinstance(topics, str | Mapping):
            raise ConfigError(
                f"`topic` of Retry must be a topic or a mapping of topics to delays, got {topics!r}"
            )
        for topic, delay_ms in self.delays_ms.items():
            name: object = topic
            if not isinstance(name, str) or not name:
                raise ConfigError(f"`topic` of Retry must be the name of a topic, got {name!r}")
            whole_number(f"the delay of {topic!r}", delay_ms, 0)
        if len(self.delays_ms) > max(1, self.attempts - 1):
            raise ConfigError(
                f"{len(self.delays_ms)} retry topics need `attempts` of at least "
                f"{len(self.delays_ms) + 1}, got {self.attempts}: a record has one attempt before "
                "the first topic, and one after each delay"
            )

    @property
    def delays_ms(self) -> Mapping[str, int]:
        """The delay in ms of each retry topic, in their order. Empty without a retry topic."""
        if self.topic is None:
            return {}
        return {self.topic: self.delay_ms} if isinstance(self.topic, str) else self.topic

    def with_prefix(self, prefix: str) -> "Retry":
        """Return a copy with `prefix` before the names of the retry topics."""
        if self.topic is None or isinstance(self.topic, str):
            return self if self.topic is None else replace(self, topic=prefix + self.topic)
        return replace(self, topic={prefix + name: delay for name, delay in self.topic.items()})

    def wait(self, attempts: int, error: BaseException, randomness: Random) -> float | None:
        """Return the seconds until the next attempt, or None if this error is not retried any more.

        `attempts` is the number of attempts so far.
        """
        if attempts >= self.attempts or not isinstance(error, self.on):
            return None
        backoff_ms = self.backoff_ms << min(attempts - 1, _MOST_DOUBLINGS)
        wait = min(backoff_ms, self.max_backoff_ms) / 1000
        return wait * randomness.uniform(1 - self.jitter, 1 + self.jitter)
