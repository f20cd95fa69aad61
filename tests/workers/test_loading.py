"""Loading of apps, restart delays, slots and the status server of `asyncconsumer run`."""

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from asyncconsumer import ConfigError
from asyncconsumer.web.pages import asgi
from asyncconsumer.web.server import serving
from asyncconsumer.workers.loading import load
from asyncconsumer.workers.process import WorkerProcess
from asyncconsumer.workers.restarts import Restarts
from asyncconsumer.workers.slot import Slot
from tests.web.test_pages import BUSY, STALLED

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("worker", "'worker' does not have the form MODULE:APP. Name the app as in"),
        ("worker:", "'worker:' does not have the form"),
        ("no_such:app", "no_such cannot be imported: ModuleNotFoundError: No module named"),
        ("example:nothing", "example has no app 'nothing', only app, other. Name the app as in"),
        ("example:inner.nothing", "example has no app 'inner.nothing'"),
        (
            "example:number",
            "example:number must be a ConsumerApp, and its type is int. Name the app as in",
        ),
        ("wrong_option:app", r"cannot be imported: ConfigError: .*wrong_option.py:2\)"),
        ("no_python:app", r"cannot be imported: SyntaxError: .*no_python.py, line 1\)"),
        ("leaving:app", "cannot be imported: SystemExit: 3"),
    ],
)
def test_an_invalid_target_is_reported_in_one_line(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = "ConsumerApp(bootstrap_servers='k:1', group_id='g')"
    modules = {
        "example": f"app = {made}\nother = app\nnumber = 3\nclass inner: app = app",
        "wrong_option": "app = ConsumerApp(bootstrap_server='k:1')",
        "no_python": "app = =",
        "leaving": "raise SystemExit(3)",
    }
    for name, text in modules.items():
        first = "" if name == "no_python" else "from asyncconsumer import ConsumerApp\n"
        (tmp_path / f"{name}.py").write_text(f"{first}{text}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=message) as raised:
        load(target)
    assert "\n" not in str(raised.value)
    assert load("example:app") is load("example:inner.app")


def test_the_restart_delay_grows_with_repeated_ends() -> None:
    restarts = Restarts(Random(1))
    waits = [restarts.next_delay(lived=1.0) for _ in range(12)]
    assert 0.4 <= waits[0] <= 0.5
    assert all(24 <= wait <= 30 for wait in waits[-4:])
    assert waits[:6] == sorted(waits[:6])
    assert restarts.failing
    assert restarts.next_delay(lived=3600.0) <= 0.5
    assert not restarts.failing


async def test_a_slot_reports_the_status_of_its_worker() -> None:
    said: list[str] = []
    nothing: Any = None
    slot = Slot(1, nothing, said.append, Random(1))
    assert (slot.status().live, slot.status().ready) == (True, False)

    worker = WorkerProcess(1, nothing, nothing, said.append)
    assert slot.replace(worker) is None
    assert slot.status().state == "starting"
    worker._on_message({"status": BUSY.as_dict()})
    assert slot.status() == BUSY
    worker.silent_seconds = 59
    assert (slot.status().live, slot.status().ready) == (True, False)
    assert slot.status().reason == "no report for 59 s"
    worker.silent_seconds = 60
    assert not slot.status().live
    worker._on_message({"status": BUSY.as_dict()})
    assert slot.status() == BUSY

    worker.status, worker.reason = None, "exit code 7"
    worker.ended.set()
    for _ in range(5):
        assert slot.status().live
        slot._restart_delay(worker)
    assert not slot.status().live
    assert slot.status().reason == "exit code 7"
    assert said[0].startswith("worker 1 has ended: exit code 7; restart in 0.")
    assert said[-1].startswith("worker 1 has ended 5 times in a row: exit code 7; restart in ")


async def test_pages_are_served_without_a_web_app() -> None:
    async with serving(asgi(lambda: {"1": BUSY, "2": STALLED}), "127.0.0.1", 0) as port:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/ready?because=x") as answer:
                assert (answer.status, (await answer.json())["state"]) == (
                    503,
                    "consuming, stalled",
                )
            async with session.get("/nothing") as answer:
                assert answer.status == 404
            async with session.head("/live") as answer:
                assert answer.status == 200
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: .* in use"):
            async with serving(asgi(dict), "127.0.0.1", port):
                pytest.fail("two on one port")


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET /live\r\n\r\n"])
async def test_an_invalid_http_request_is_refused(sent: bytes) -> None:
    async with serving(asgi(lambda: {"": BUSY}), "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()
        await writer.wait_closed()


async def test_clients_with_too_large_or_empty_requests_are_disconnected() -> None:
    async with serving(asgi(lambda: {"": BUSY}), "127.0.0.1", 0) as port:
        for sent in (b"GET /live HTTP/1.1\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            with suppress(ConnectionResetError):  # closed before the whole request was read
                assert (await reader.read())[:12] in (b"HTTP/1.1 400", b"")
            writer.close()
