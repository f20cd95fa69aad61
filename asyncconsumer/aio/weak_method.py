"""Methods that do not keep their object alive: background tasks hold on to what they call."""

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asyncconsumer.errors import ClosedError

P = ParamSpec("P")
R = TypeVar("R")


def weakly(method: Callable[P, R]) -> Callable[P, R]:
    """The same method; it raises ClosedError once its object was garbage-collected."""
    found = weakref.WeakMethod(method)

    def call(*args: P.args, **options: P.kwargs) -> R:
        if (there := found()) is None:
            raise ClosedError("the consumer was garbage-collected without being closed")
        return there(*args, **options)

    return call
