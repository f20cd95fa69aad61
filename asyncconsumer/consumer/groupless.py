"""The base class of readers without a group."""

from contextlib import AsyncExitStack
from typing import Any, ClassVar, Self

from asyncconsumer.aio.resource import AsyncResource
from asyncconsumer.config import check_names
from asyncconsumer.fetch.client import KafkaClient


class GrouplessReader(AsyncResource):
    """A reader that opens its own Kafka client, and checks the names of its options.

    `_own_options` are the names of those options that are parameters of the subclass.
    """

    _own_options: ClassVar[tuple[str, ...]]
    _session: KafkaClient

    def __new__(cls, *servers: Any, **options: Any) -> Self:  # noqa: ANN401 - checks names
        """Check the names of the options before Python checks the arguments.

        Otherwise a TypeError about missing `bootstrap_servers` would hide a misspelled option.
        """
        positional = {"bootstrap_servers": servers[0]} if servers else {}
        check_names({**options, **positional}, cls._own_options)
        return super().__new__(cls)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._session)
