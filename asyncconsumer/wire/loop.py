"""What one `async for` iterates with; in pure Python it does not know how that loop was left."""

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar, final

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Nexts(Protocol[T_co]):
    """As much of an async iterator as is needed."""

    def __anext__(self) -> Awaitable[T_co]:
        """The next one."""


@final
class Loop(Generic[T]):
    """The compiled one calls `failed` when its loop was left by an error, not by ``break``.

    It sees that when the loop lets go of it: an error is under way then, or none is. Python code
    cannot look for that, so here `failed` is never called.
    """

    __slots__ = ("__weakref__", "_failed", "_source")

    def __init__(self, source: Nexts[T], failed: Callable[[], None]) -> None:
        if not hasattr(type(source), "__anext__"):
            raise TypeError(f"source must be an async iterator, not {type(source).__name__}")
        self._source = source
        self._failed = failed

    def __aiter__(self) -> "Loop[T]":
        return Loop(self._source, self._failed)

    def __anext__(self) -> Awaitable[T]:
        return self._source.__anext__()
