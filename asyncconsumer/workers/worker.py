"""The main module of a worker process, which runs an app and reports to its supervisor.

A worker drains when its supervisor asks, when its supervisor dies, or on a signal. A second signal
has no effect, because a service manager may signal the supervisor and all workers at once. Only the
supervisor can ask a worker to stop without draining.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from asyncconsumer.aio.scope import Scope
from asyncconsumer.errors import ConfigError, ConsumerError, brief
from asyncconsumer.handlers.app import ConsumerApp
from asyncconsumer.handlers.signals import signals
from asyncconsumer.workers import logs
from asyncconsumer.workers.control_pipe import ControlPipe, send_blocking
from asyncconsumer.workers.feeder_service import FeederService
from asyncconsumer.workers.loading import load_service
from asyncconsumer.workers.process import APP_GRACE, CREATE_TOPICS
from asyncconsumer.workers.recycling import resident_bytes
from asyncconsumer.workers.system_signals import ignore_hangup

_log: Final = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS: Final = 1.0
DRAINED, FAILED, UNUSABLE = range(3)  # exit codes


class WorkerRuntime:
    """An app and the control pipe to its supervisor."""

    def __init__(
        self, app: ConsumerApp | FeederService, pipe: ControlPipe, grace_ms: int | None
    ) -> None:
        self._app = app
        self._pipe = pipe
        self._grace_ms = app.shutdown_grace_ms if grace_ms is None else grace_ms
        self._stop_requested = asyncio.Event()
        self._opening: asyncio.Task[object] | None = None  # cancelled by a request to stop
        self._opened = asyncio.Event()
        self._scope = Scope("worker")

    async def run(self) -> int:
        """Run the app until the supervisor or a signal stops it. Return the exit code.

        If the app has not joined its group yet, a stop cancels this task.
        """
        self._opening = asyncio.current_task()
        with signals(self._stop):
            async with self._scope as scope:
                scope.start(self._receive(), "receive")
                async with self._app as app:
                    self._opened.set()
                    scope.start(self._report(), "report")
                    await app.consumer.wait_joined()
                    self._opening = None
                    static = app.consumer.config.member.group_instance_id is not None
                    self._pipe.send(member=app.consumer.member_id)
                    self._pipe.send(up=True, static=static, grace=self._grace_ms / 1000)
                    if isinstance(app, FeederService):
                        await app.wait(self._stop_requested)
                    await self._stop_requested.wait()
                    drained = await app.drain(self._grace_ms)
        if not drained:
            self._pipe.send(unfinished=str(drained))
        return DRAINED if drained else FAILED

    def _stop(self) -> None:
        self._stop_requested.set()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    async def _receive(self) -> None:
        async for message in self._pipe.messages():
            match message:
                case {"dead_member": str(member_id)}:
                    self._scope.start(self._remove(member_id), "remove a member")
                case {"paused_topics": list(topics)}:
                    self._scope.start(self._pause_only(frozenset(topics)), "pause topics")
                case _:
                    self._stop()
                    if "stop_now" in message:
                        with suppress(ConsumerError):  # the app is closed already
                            await self._app.drain(0)
        self._stop()

    async def _pause_only(self, topics: frozenset[str]) -> None:
        """Pause these topics, and resume all other topics that were paused by name.

        Wait first until the app is open. A pause of the whole app is not changed.
        """
        await self._opened.wait()
        with suppress(ConsumerError):  # the app is closed already
            if resumed := self._app.paused_topics - topics:
                self._app.resume(*resumed)
            if topics:
                self._app.pause(*topics)

    async def _remove(self, member_id: str) -> None:
        """Remove the member of a dead worker from the group, before its session times out."""
        await self._opened.wait()
        try:
            await self._app.remove_member(member_id)
        except ConsumerError as error:
            _log.warning(
                "dead member %s could not be removed from the group and stays until its session "
                "times out: %s",
                member_id,
                error,
            )

    async def _report(self) -> None:
        while True:
            if (member_id := self._app.consumer.member_id) is not None:
                self._pipe.send(member=member_id)
            self._pipe.send(records=self._app.recorder.consumed_records, memory=resident_bytes())
            self._pipe.send(status=self._app.status_by_worker()[""].as_message())
            await asyncio.sleep(_SECONDS_BETWEEN_REPORTS)


async def _work(app: ConsumerApp | FeederService, end: socket.socket, grace_ms: int | None) -> int:
    pipe = await ControlPipe.open(end)
    try:
        return await WorkerRuntime(app, pipe, grace_ms).run()
    except ConfigError as error:
        pipe.send(unusable=str(error))
        return UNUSABLE
    except Exception as error:  # noqa: BLE001 - reported, and the worker exits
        if not isinstance(error, ConsumerError):  # the message of a ConsumerError is enough
            _log.exception("the worker failed with an unexpected error")
        pipe.send(failed=brief(error))
        return FAILED
    finally:
        await pipe.close()


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio":
        return None
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


def main(
    target: str,
    number: str,
    descriptor: str,
    grace_ms: str,
    loop: str,
    log_format: str,
    *flags: str,
) -> int:
    """Run a worker process, and return its exit code.

    `descriptor` is the file descriptor of the control pipe. The reason of a failure is reported to
    the supervisor.
    """
    ignore_hangup()  # only the supervisor reloads
    end = socket.socket(fileno=int(descriptor))
    try:
        app = load_service(target)
        app.set_worker_number(int(number))
        if CREATE_TOPICS in flags:
            app.enable_topic_creation()
    except ConfigError as error:
        send_blocking(end, unusable=str(error))
        return UNUSABLE
    logs.configure(logs.make_formatter(logs.LogFormat(log_format), int(number)), logging.INFO)
    with asyncio.Runner(loop_factory=_loop_factory(loop)) as runner:
        try:
            grace = None if grace_ms == APP_GRACE else int(grace_ms)
            return runner.run(_work(app, end, grace))
        except asyncio.CancelledError:
            return DRAINED  # there was nothing to drain yet


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
