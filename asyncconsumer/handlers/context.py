"""The context of a handler call, which handlers can ask for."""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from asyncconsumer.handlers.partition_work import Item, first_of, records_of
from asyncconsumer.records.decoding import Record

if TYPE_CHECKING:
    from asyncconsumer.handlers.app import ConsumerApp

attempts_elsewhere: Final[ContextVar[int]] = ContextVar("attempts_elsewhere", default=0)
"""The number of attempts before the current handler call, if its record is in a retry topic."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a handler call, for handlers, dependencies and middlewares.

    `handler` is the name of the handler, and `item` is its record or batch. `attempt` counts from
    1, and includes the attempts that were made before the record was in a retry topic.
    """

    app: "ConsumerApp"
    handler: str
    item: Item
    attempt: int = 1

    @property
    def record(self) -> Record:
        """The record of the call, or the first one of its batch."""
        return first_of(self.item)

    @property
    def records(self) -> list[Record]:
        """The records of the call's batch, or its only record."""
        return records_of(self.item)

    @property
    def state(self) -> Any:  # noqa: ANN401 - as the lifespan yields it
        """The state that the lifespan of the app yielded."""
        return self.app.state

    def with_item(self, item: Item) -> Self:
        """Return this context with another record or batch, for the next middleware."""
        return replace(self, item=item)
