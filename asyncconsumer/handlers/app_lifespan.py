"""The lifespan of an app, a context manager of the user that is open while the app runs."""

from contextlib import AsyncExitStack
from typing import Any

from asyncconsumer.errors import ConfigError
from asyncconsumer.web.mixin import Lifespan


async def enter_lifespan(lifespan: Lifespan, app: object, stack: AsyncExitStack) -> Any:  # noqa: ANN401
    """Enter the context manager that `lifespan` returns for `app`. Return the state that it yields.

    `stack` exits the context manager. If entering raises an exception, the exception gets a note
    that names `lifespan`.
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
