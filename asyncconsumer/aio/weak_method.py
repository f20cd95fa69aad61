"""Bound methods with a weak reference to their object, for background tasks."""

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asyncconsumer.errors import ClosedError

P = ParamSpec("P")
R = TypeVar("R")


def weak_method(method: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls `method` but does not keep the method's object alive.

    It raises `ClosedError` after the object was garbage-collected.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **options: P.kwargs) -> R:
        if (bound := reference()) is None:
            raise ClosedError("the consumer was garbage-collected without being closed")
        return bound(*args, **options)

    return call
