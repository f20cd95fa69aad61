"""Handler calls with dependencies, which are created before the call and cleaned up after it."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import CoroutineType
from typing import Any, TypeAlias

from asyncconsumer.handlers.arguments import Argument, Dependency, Inject, dependency_of
from asyncconsumer.handlers.context import Context
from asyncconsumer.handlers.markers import State

Overrides: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]
"""The replacements of dependencies: a mapping from dependencies to their replacements."""
ContextCall: TypeAlias = Callable[[Context], Awaitable[Any]]


def injected(
    run: Callable[..., Awaitable[Any]], arguments: Sequence[Argument], *, batch: bool
) -> ContextCall:
    """Return a function that creates the dependencies, calls the handler, and cleans them up."""

    async def call(context: Context) -> Any:  # noqa: ANN401 - what the handler returns
        failure: BaseException | None = None
        result = None
        async with AsyncExitStack() as stack:
            try:
                values = _Values(context, stack, batch=batch)
                plain, named = await values.of_all(arguments)
                result = await run(*plain, **named)
            except BaseException as error:
                failure = error
                raise
        if failure is not None:  # a dependency's generator caught it; the handler failed
            raise failure
        return result

    return call


def with_overrides(
    name: str, arguments: Sequence[Argument], overrides: Overrides, *, batch: bool
) -> list[Argument]:
    """Return the arguments with their dependencies replaced by `overrides`.

    Raise ConfigError for a replacement with unsupported parameters.
    """

    def replaced(argument: Argument) -> Argument:
        made = argument.inject
        if not isinstance(made, Dependency):
            return argument
        if made.function in overrides:
            function = overrides[made.function]
            made = dependency_of(f"handler {name}", function, use_cache=made.use_cache, batch=batch)
        else:
            made = made.with_arguments([replaced(each) for each in made.arguments])
        return argument._replace(inject=made)

    return [replaced(argument) for argument in arguments] if overrides else list(arguments)


class _Values:
    """The values of the arguments of one call. Each dependency is created when it is needed."""

    __slots__ = ("_batch", "_cache", "_context", "_stack")

    def __init__(self, context: Context, stack: AsyncExitStack, *, batch: bool) -> None:
        self._context = context
        self._stack = stack
        self._batch = batch
        self._cache: dict[Callable[..., Any], Any] = {}

    async def of_all(self, arguments: Sequence[Argument]) -> tuple[list[Any], dict[str, Any]]:
        """Return the values of positional arguments, and those of keyword arguments by name."""
        plain: list[Any] = []
        named: dict[str, Any] = {}
        for argument in arguments:
            value = await self._of(argument)
            if argument.keyword is None:
                plain.append(value)
            else:
                named[argument.keyword] = value
        return plain, named

    async def _of(self, argument: Argument) -> Any:  # noqa: ANN401 - any value
        match argument.inject:
            case Dependency() as dependency:
                return await self._made(dependency)
            case State() as state:
                return state.of(self._context.state)
            case Inject.CONTEXT:
                return self._context
        records = self._context.records
        values = [argument.read(record) for record in records]
        if argument.waits:
            values = [
                await value if isinstance(value, CoroutineType) else value for value in values
            ]
        return values if self._batch else values[0]

    async def _made(self, dependency: Dependency) -> Any:  # noqa: ANN401 - any value
        function = dependency.function
        if dependency.use_cache and function in self._cache:
            return self._cache[function]
        plain, named = await self.of_all(dependency.arguments)
        value: Any
        if inspect.isasyncgenfunction(dependency.kind):
            opened = asynccontextmanager(function)(*plain, **named)
            value = await self._stack.enter_async_context(opened)
        elif inspect.isgeneratorfunction(dependency.kind):
            value = self._stack.enter_context(contextmanager(function)(*plain, **named))
        else:
            value = function(*plain, **named)
            if inspect.isawaitable(value):
                value = await value
        if dependency.use_cache:
            self._cache[function] = value
        return value
