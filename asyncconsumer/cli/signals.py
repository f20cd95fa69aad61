"""How the program runs, and how it is stopped."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import typer

from asyncconsumer.workers import system_signals


def quiet_zookeeper(*, quiet: bool) -> None:
    """Whether failed tries to connect are told while there are more; the last one always is."""
    logging.getLogger("asyncconsumer.zookeeper").setLevel(
        logging.ERROR if quiet else logging.NOTSET
    )


def until_stopped(main: Callable[[], Coroutine[Any, Any, None]], *, meant: bool = False) -> None:
    """Run `main`; Ctrl-C, SIGTERM and a closed terminal end it in good order.

    The exit code tells of the signal, unless to be stopped is how it is `meant` to end. Then it
    is 0, and a second signal, while it stops, ends the program at once.
    """
    received: list[signal.Signals] = []

    async def guarded() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop(number: signal.Signals) -> None:
            if not received:
                task.cancel()
                if meant:
                    for one in handled:
                        system_signals.restore(one)
            received.append(number)

        handled = [signal.SIGINT, signal.SIGTERM]
        if (hangup := system_signals.hangup()) is not None:
            handled.append(hangup)
        for number in handled:
            system_signals.handle(number, partial(stop, number))
        await main()

    try:
        asyncio.run(guarded())
    except asyncio.CancelledError:
        if not meant:
            raise typer.Exit(128 + received[0]) from None
