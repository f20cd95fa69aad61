"""Requests to the dashboard: hosts, security headers, changes, and clients that share polls."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from asyncconsumer import ConfigError
from asyncconsumer.dashboard import site as site_module
from asyncconsumer.dashboard.access import HostCheck, TokenCheck, read_token
from asyncconsumer.dashboard.collector import ClusterCollector
from asyncconsumer.dashboard.model import ClusterSnapshot
from asyncconsumer.dashboard.page import html_page
from asyncconsumer.dashboard.site import DashboardSite
from asyncconsumer.dashboard.sites import dashboard, make_site
from asyncconsumer.dashboard.snapshotter import Snapshotter
from asyncconsumer.errors import ConnectFailed
from asyncconsumer.web.pages import asgi
from asyncconsumer.web.server import serving
from tests.support.helpers import until
from tests.web.test_pages import BUSY

pytestmark = pytest.mark.fast

TOKEN = "0123456789abcdef"


class Recorder:
    """Dashboard actions that are recorded and not performed."""

    available = ("pause",)
    paused = ("held",)

    def __init__(self) -> None:
        self.performed: list[tuple[str, str]] = []

    async def perform(self, name: str, topic: str) -> str:
        self.performed.append((name, topic))
        return "done"


@asynccontextmanager
async def served(site: DashboardSite) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serving(site, "127.0.0.1", 0, before_stop=site.close) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield session


def changeable(recorder: Recorder) -> DashboardSite:
    return make_site(None, token=TokenCheck(TOKEN), actions=recorder, interval=0.1)


async def test_the_page_has_a_strict_policy_and_no_external_resource() -> None:
    async with served(make_site(None)) as session, session.get("/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        text = await answer.text()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2
    assert not re.search(r"""(src|href)=["']?(?!data:)(https?:)?//""", text)
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in text
    assert not re.search(r"\son\w+=", html_page().body.decode().partition("<script>")[0])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:81", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:80", 200),
        ("kafka.example", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
    ],
)
async def test_only_allowed_hosts_are_served(host: str, status: int) -> None:
    site = make_site(None, hosts=HostCheck(["kafka.example"]))
    async with served(site) as session:
        for path in ("/", "/events"):
            async with session.get(path, headers={"Host": host}) as answer:
                assert answer.status == status


async def test_health_pages_are_served_to_every_host_beside_the_dashboard() -> None:
    site = make_site(None)
    both = asgi(lambda: {"": BUSY}, site)
    async with (
        serving(both, "127.0.0.1", 0, before_stop=site.close) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        async with session.get("/ready", headers={"Host": "10.0.0.7"}) as answer:
            assert answer.status == 200
        async with session.get("/", headers={"Host": "10.0.0.7"}) as answer:
            assert answer.status == 421
        async with session.get("/nothing") as answer:
            assert answer.status == 404


async def test_a_mounted_page_redirects_to_the_path_with_a_slash() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/kafka",
        "root_path": "/kafka",
        "headers": [(b"host", b"localhost")],
    }
    await make_site(None)(scope, receive, send)
    assert sent[0]["status"] == 307
    assert (b"location", b"/kafka/") in sent[0]["headers"]
    with pytest.raises(RuntimeError, match="websocket"):
        await make_site(None)({"type": "websocket"}, receive, send)


async def act(session: aiohttp.ClientSession, name: str = "pause", **headers: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}", **headers}
    async with session.post(f"/actions/{name}", json={"topic": "t"}, headers=headers) as answer:
        return answer.status


async def test_changes_need_the_token_and_the_same_origin() -> None:
    recorder = Recorder()
    async with served(changeable(recorder)) as session:
        assert await act(session, Authorization="") == 403
        assert await act(session, Authorization="Bearer 0123456789abcdeF") == 403
        assert await act(session, Authorization=f"Basic {TOKEN}") == 403
        assert await act(session, Origin="http://evil.example") == 403
        assert await act(session, **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert await act(session, Host="evil.example") == 421
        assert await act(session, "replay") == 404
        async with session.get("/actions/pause") as answer:
            assert answer.status == 404
        assert recorder.performed == []
        assert await act(session, Origin=str(session._base_url).rstrip("/")) == 200
    assert recorder.performed == [("pause", "t")]


async def test_an_invalid_request_body_is_refused() -> None:
    recorder = Recorder()
    async with served(changeable(recorder)) as session:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for body in (b"", b"[]", b"{}", b'{"topic": 3}', b"x" * 100_000):
            async with session.post("/actions/pause", data=body, headers=headers) as answer:
                assert answer.status == 400, body
    assert recorder.performed == []


async def test_changes_are_disabled_without_a_token() -> None:
    async with served(make_site(None, actions=Recorder())) as session:
        assert await act(session) == 404


def test_the_token_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASYNCCONSUMER_DASHBOARD_TOKEN", raising=False)
    assert read_token() is None
    monkeypatch.setenv("ASYNCCONSUMER_DASHBOARD_TOKEN", "from the environment")
    assert read_token() == "from the environment"
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(file)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_token(file)
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    with pytest.raises(ConfigError, match="has 5 characters"):
        TokenCheck("short")


def test_options_are_checked_by_the_constructor() -> None:
    with pytest.raises(ConfigError, match="`bootstrap_servers` is missing"):
        dashboard()
    with pytest.raises(ConfigError, match="`interval` must be at least"):
        make_site(None, interval=0)


# --- updates -------------------------------------------------------------------------------------


class FakeAdmin:
    """An admin client that is opened and closed."""

    open = 0

    async def __aenter__(self) -> Self:
        FakeAdmin.open += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        FakeAdmin.open -= 1


class Counting(ClusterCollector):
    """A collector that counts its polls, and fails on demand."""

    def __init__(self) -> None:
        super().__init__(interval=0.01)
        self.polls = self.in_flight = self.max_in_flight = 0
        self.error: Exception | None = None

    async def poll(self, admin: Any) -> ClusterSnapshot:
        self.polls += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0.002)
            if self.error is not None:
                raise self.error
            return ClusterSnapshot(self.polls, self.interval)
        finally:
            self.in_flight -= 1


async def take(snapshotter: Snapshotter, seen: list[ClusterSnapshot]) -> None:
    async with snapshotter.connected() as updates:
        async for snapshot in updates:
            seen.append(snapshot)  # noqa: PERF401 - other tasks read the list meanwhile


async def test_clients_share_polls_which_end_with_the_last_client() -> None:
    collector = Counting()
    snapshotter = Snapshotter(collector, FakeAdmin)  # type: ignore[arg-type] # a partial fake
    lists: list[list[ClusterSnapshot]] = [[], [], []]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(take(snapshotter, seen)) for seen in lists]
        await until(lambda: all(len(seen) > 3 for seen in lists))
        assert FakeAdmin.open == 1
        for task in tasks[:2]:  # the first client polls, and another client takes over
            task.cancel()
        before = len(lists[2])
        await until(lambda: len(lists[2]) > before + 3)
        assert (FakeAdmin.open, collector.max_in_flight) == (1, 1)
        versions = [snapshot.version for snapshot in lists[2]]
        assert versions == sorted(set(versions))
        tasks[2].cancel()
    assert FakeAdmin.open == 0
    assert not snapshotter.is_polling
    polls = collector.polls
    await asyncio.sleep(0.1)
    assert collector.polls == polls


async def test_a_failed_poll_keeps_the_last_state_and_is_repeated() -> None:
    collector = Counting()
    snapshotter = Snapshotter(collector, FakeAdmin)  # type: ignore[arg-type] # a partial fake
    seen: list[ClusterSnapshot] = []
    async with asyncio.TaskGroup() as group:
        task = group.create_task(take(snapshotter, seen))
        await until(lambda: bool(seen))
        collector.error = ConnectFailed(("k", 9092), "refused")
        await until(lambda: seen[-1].error is not None)
        outdated = seen[-1]
        assert outdated.time > 0
        assert "refused" in str(outdated.error)
        assert [reason.level for reason in outdated.health] == ["error"]
        collector.error = None
        await until(lambda: seen[-1].error is None)
        assert seen[-1].time > outdated.time
        task.cancel()


async def test_a_slow_client_skips_snapshots() -> None:
    collector = Counting()
    snapshotter = Snapshotter(collector, FakeAdmin)  # type: ignore[arg-type] # a partial fake
    async with snapshotter.connected() as updates:
        first = await anext(updates)
        await until(lambda: collector.polls > first.version + 5)
        second = await anext(updates)
        assert second.version >= first.version + 5


async def events(session: aiohttp.ClientSession, count: int) -> list[str]:
    async with session.get("/events") as answer:
        assert answer.content_type == "text/event-stream"
        lines = []
        async for line in answer.content:
            if line.startswith(b"event: "):
                lines.append(line.decode().split()[1])
            if len(lines) == count:
                return lines
    return lines


async def test_updates_are_server_sent_events() -> None:
    site = make_site(None, interval=0.1, status=lambda: {"1": BUSY})
    async with served(site) as session:
        assert await events(session, 3) == ["history", "snapshot", "snapshot"]
        await until(lambda: not site._snapshotter.is_polling)


async def test_the_number_of_clients_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "MAX_CLIENTS", 1)
    async with served(make_site(None, interval=0.1)) as session, session.get("/events") as first:
        await first.content.readline()
        async with session.get("/events") as second:
            assert second.status == 503


async def test_a_client_that_receives_nothing_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_module, "_SEND_SECONDS", 0.05)
    site = make_site(None, interval=0.1)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "headers": [(b"host", b"localhost")],
    }
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(20):
        await site(scope, receive, send)
    assert sent == ["http.response.start", "http.response.body"]
