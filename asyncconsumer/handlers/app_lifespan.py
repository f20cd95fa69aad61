"""The lifespan of an app: a context manager of the user, open while the app runs."""

from contextlib import AsyncExitStack
from typing import Any

from asyncconsumer.errors import ConfigError
from asyncconsumer.web.mixin import Lifespan


async def enter_lifespan(lifespan: Lifespan, app: object, stack: AsyncExitStack) -> Any:  # noqa: ANN401
    """Enter the context manager that `lifespan` returns, and return its state.

    An exception is raised with a note, so that the reader of a traceback knows why it ran.
    """
    opened: object = lifespan(app)
    if not (hasattr(opened, "__aenter__") and hasattr(opened, "__aexit__")):
        raise ConfigError(
            f"`lifespan` returned {type(opened).__name__}, not an async context manager. Decorate "
            "it with contextlib.asynccontextmanager"
        )
    try:
        return await stack.enter_async_context(opened)
    except Exception as error:
        error.add_note("raised by the `lifespan` of the app, before the app joined its group")
        raise
