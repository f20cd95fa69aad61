"""Health and metrics pages, over HTTP in several frameworks."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient as AsgiClient

from asyncconsumer.consumer.health import HealthState
from asyncconsumer.errors import ConfigError
from asyncconsumer.handlers.health import AppState, HandlerHealth
from asyncconsumer.web.aiohttp import health_pages
from asyncconsumer.web.metrics import STATES, metrics
from asyncconsumer.web.pages import Readiness, asgi, page
from asyncconsumer.web.status import Status, combine
from tests.web.test_mixin import HEALTHY, Resource

pytestmark = pytest.mark.fast

BUSY = Status(
    live=True,
    ready=True,
    state="consuming",
    lag={"orders": {"0": 7, "1": None}, 'a"b\\': {"0": 1}},
    seconds_since={"heartbeat": 0.25, "fetch": None},
    handlers={"bill": {"running": 2, "finished": 40}},
    events={"skipped": 3},
)
STALLED = Status(live=True, ready=False, state="stalled", reason="no answer from 1")
DEAD = Status(live=False, ready=False, state="failed", reason="the group was deleted")


def answer(path: str, *standings: Status, method: str = "GET") -> tuple[int, Any]:
    parts = {str(number): status for number, status in enumerate(standings, 1)}
    made = page(method, path, lambda: parts if len(parts) > 1 else {"": standings[0]})
    return made.status, json.loads(made.body)


def test_probes_have_a_status_code_and_a_reason() -> None:
    assert answer("/live", BUSY)[0] == answer("/ready", BUSY)[0] == 200
    assert answer("/live", STALLED)[0] == 200
    stalled = {"ready": False, "state": "stalled", "reason": "no answer from 1"}
    assert answer("/ready", STALLED) == (503, stalled)
    assert answer("/live", DEAD)[0] == answer("/ready", DEAD)[0] == 503
    assert answer("/live", DEAD)[1]["reason"] == "the group was deleted"
    starting = replace(STALLED, state="rebalancing", reason="waiting for the first assignment")
    assert answer("/started", starting) == (
        503,
        {"started": False, "state": starting.state, "reason": starting.reason},
    )
    assert answer("/started", replace(STALLED, started=True))[0] == 200


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (BUSY, 200),
        (STALLED, 200),
        (replace(BUSY, ready=False, state="paused"), 200),
        (replace(BUSY, ready=False, state="starting"), 200),  # Kafka is unavailable
        (replace(BUSY, ready=False, state="draining"), 503),
        (replace(BUSY, ready=False, state="closed"), 503),
        (DEAD, 503),
    ],
)
def test_readiness_for_traffic_does_not_depend_on_kafka(status: Status, code: int) -> None:
    for parts in ({"": status}, {"1": status, "2": status}):
        response = page("GET", "/ready", partial(dict, parts), Readiness.TRAFFIC)
        body = json.loads(response.body)
        assert (response.status, body["ready"], body["state"]) == (code, code == 200, status.state)


def test_the_readiness_of_a_mounted_app_is_chosen() -> None:
    class Stalled(Resource):
        def status(self) -> Status:
            return STALLED

    resource = Stalled()
    for ready, code in (("work", 503), ("traffic", 200)):
        app: Any = resource.asgi(ready=ready)  # type: ignore[arg-type]
        assert AsgiClient(app).get("/ready").status_code == code
    with pytest.raises(ConfigError, match="`ready` must be 'work' or 'traffic', got 'both'"):
        resource.asgi(ready="both")  # type: ignore[arg-type]


def test_lag_is_reported_by_partition_and_in_total_if_known() -> None:
    status, reported = answer("/lag", BUSY)
    assert (status, reported["total"], reported["topics"]["orders"]) == (
        200,
        None,
        {"0": 7, "1": None},
    )
    assert Status(live=True, ready=True, state="", lag={"t": {"0": 3, "1": 4}}).total_lag == 7


def test_the_status_page_can_be_parsed() -> None:
    status, reported = answer("/status/", BUSY)
    assert status == 200
    assert Status.from_json(json.dumps({**reported, "of_a_newer_version": 1})) == BUSY


def test_the_status_of_several_workers_is_combined() -> None:
    assert answer("/ready", BUSY, BUSY)[0] == 200
    status, reported = answer("/ready", BUSY, STALLED)
    assert (status, reported["reason"], reported["state"]) == (
        503,
        "2: no answer from 1",
        "consuming, stalled",
    )
    assert answer("/live", BUSY, DEAD)[0] == 503
    assert answer("/status", BUSY, DEAD)[1]["workers"]["2"]["reason"] == DEAD.reason
    assert not combine({}).ready
    started = replace(STALLED, started=True)
    assert answer("/started", started, started)[0] == 200
    assert answer("/started", started, STALLED)[0] == 503
    assert not combine({}).started


def test_unknown_pages_and_methods_are_refused() -> None:
    status, reported = answer("/nothing", BUSY)
    assert (status, "/ready" in reported["error"]) == (404, True)
    assert answer("/live", BUSY, method="POST")[0] == 405
    assert page("HEAD", "/live", lambda: {"": BUSY}).body == b""


def samples(parts: Mapping[str, Status]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples as parsed by Prometheus."""
    read: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(metrics(parts)):
        for sample in family.samples:
            read.setdefault(sample.name, []).append((sample.labels, sample.value))
    return read


def test_prometheus_can_parse_the_metrics() -> None:
    assert samples({"": BUSY}) == {
        "asyncconsumer_live": [({}, 1)],
        "asyncconsumer_ready": [({}, 1)],
        "asyncconsumer_state": [({"state": state}, state == "consuming") for state in STATES],
        "asyncconsumer_lag_records": [
            ({"topic": "orders", "partition": "0"}, 7),
            ({"topic": 'a"b\\', "partition": "0"}, 1),
        ],
        "asyncconsumer_heartbeat_age_seconds": [({}, 0.25)],
        "asyncconsumer_handler_running": [({"handler": "bill"}, 2)],
        "asyncconsumer_handler_finished_total": [({"handler": "bill"}, 40)],
        "asyncconsumer_events_total": [({"event": "skipped"}, 3)],
    }


def test_monotonic_metrics_are_counters() -> None:
    kinds = {
        metric.name: metric.type for metric in text_string_to_metric_families(metrics({"": BUSY}))
    }
    assert kinds["asyncconsumer_handler_finished"] == "counter"
    assert kinds["asyncconsumer_handler_running"] == "gauge"


def test_metrics_of_several_workers_are_distinguished() -> None:
    live = samples({"1": BUSY, "2": DEAD})["asyncconsumer_live"]
    assert live == [({"worker": "1"}, 1), ({"worker": "2"}, 0)]


def test_a_former_state_has_the_value_0_and_keeps_its_series() -> None:
    idle = replace(BUSY, state="idle")
    before, after = (samples({"": status})["asyncconsumer_state"] for status in (BUSY, idle))
    assert [labels for labels, _ in before] == [labels for labels, _ in after]
    assert [labels["state"] for labels, value in after if value] == ["idle"]
    assert sum(value for _, value in after) == 1


def test_every_state_has_a_series() -> None:
    assert {*AppState, *HealthState} <= set(STATES)
    odd = samples({"": replace(BUSY, state="of a newer version")})["asyncconsumer_state"]
    assert odd[-1] == ({"state": "of a newer version"}, 1)


def test_every_metric_is_explained() -> None:
    health = HandlerHealth(*range(9))
    seconds = {"heartbeat": 1.0, "fetch": 1.0, "progress": 1.0}
    full = replace(BUSY, handlers={"bill": asdict(health)}, seconds_since=seconds)
    text = metrics({"1": full, "2": full})
    families = list(text_string_to_metric_families(text))
    assert all(metric.documentation for metric in families)
    assert text.count("# HELP ") == text.count("# TYPE ") == len(families)
    assert "asyncconsumer_handler_parked_total" in text


def test_metrics_have_the_group_as_label() -> None:
    parts = {"1": replace(BUSY, group="billing"), "2": replace(STALLED, group="billing")}
    for name, rows in samples(parts).items():
        assert {labels.get("group") for labels, _ in rows} == {"billing"}, name
    assert combine(parts).group == "billing"


def test_pages_are_mounted_into_fastapi() -> None:
    resource = Resource()
    api = FastAPI(lifespan=resource.lifespan)
    api.mount("/kafka", resource.asgi())
    with AsgiClient(api) as client:
        assert client.get("/kafka/ready").json()["state"] == HEALTHY.state
        assert client.get("/kafka/metrics").headers["content-type"].startswith("text/plain")
        assert client.get("/kafka/nothing").status_code == 404
        assert client.head("/kafka/live").content == b""


def test_pages_refuse_other_protocols() -> None:
    async def nothing(*_: object) -> Any:
        return {}

    with pytest.raises(RuntimeError, match="websocket"):
        asyncio.run(_call(asgi(lambda: {"": HEALTHY}), {"type": "websocket"}, nothing))


async def _call(app: Any, scope: dict[str, Any], nothing: Any) -> None:
    await app(scope, nothing, nothing)


async def test_pages_are_mounted_into_aiohttp() -> None:
    resource, web_app = Resource(), web.Application()
    web_app.add_subapp("/kafka", health_pages(resource))
    async with TestClient(TestServer(web_app)) as client:
        assert (await (await client.get("/kafka/ready")).json())["ready"] is True
        metrics_page = await client.get("/kafka/metrics")
        assert "asyncconsumer_live 1.0\n" in await metrics_page.text()
        assert (await client.get("/kafka/nothing")).status == 404
