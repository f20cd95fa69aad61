"""Functions that run the main coroutine of a command until a signal stops it."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import typer

from asyncconsumer.workers import system_signals


def log_zookeeper_retries(*, enabled: bool) -> None:
    """Enable or disable the warnings about failed connection attempts to ZooKeeper.

    A command disables them while it connects, because the final error is enough.
    """
    logging.getLogger("asyncconsumer.zookeeper").setLevel(
        logging.NOTSET if enabled else logging.ERROR
    )


def run_until_stopped(
    main: Callable[[], Coroutine[Any, Any, None]], *, stop_is_success: bool = False
) -> None:
    """Run `main`, and cancel it on Ctrl-C, on SIGTERM, or when the terminal is closed.

    The exit code after a signal is 128 plus the signal's number. With `stop_is_success` it is 0,
    and a second signal ends the program at once.
    """
    received: list[signal.Signals] = []

    async def cancellable() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop(number: signal.Signals) -> None:
            if not received:
                task.cancel()
                if stop_is_success:
                    for other in handled:
                        system_signals.restore(other)
            received.append(number)

        handled = [signal.SIGINT, signal.SIGTERM]
        if (hangup := system_signals.hangup()) is not None:
            handled.append(hangup)
        for number in handled:
            system_signals.handle(number, partial(stop, number))
        await main()

    try:
        asyncio.run(cancellable())
    except asyncio.CancelledError:
        if not stop_is_success:
            raise typer.Exit(128 + received[0]) from None
