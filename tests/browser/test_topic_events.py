"""Positions, values for JSON, and requests that are refused."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from asyncconsumer import ConfigError, Record
from asyncconsumer.browser import TopicEvents
from asyncconsumer.browser.positions import format_positions, parse_positions
from asyncconsumer.browser.record_events import encode_record

pytestmark = pytest.mark.fast

NOWHERE = "127.0.0.1:1"


def test_positions_are_text() -> None:
    positions = {10: 3, 2: 2**40, 0: 0}
    assert format_positions(positions) == "0:0,2:1099511627776,10:3"
    assert parse_positions(format_positions(positions)) == positions


@pytest.mark.parametrize("text", ["", "0", "0:", "a:1", "0:1,", "0:-1", "0:1;1:2", "1:" + "9" * 19])
def test_invalid_positions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be PARTITION:OFFSET"):
        parse_positions(text)


def test_a_record_is_json() -> None:
    record = Record("t", 1, 2, 3, key=None, value=b"\xff", headers=(("h", b"x"),))
    assert encode_record(record) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [["h", "x"]],
    }


def client(**options: Any) -> TestClient:
    events = TopicEvents("orders", bootstrap_servers=NOWHERE, **options)
    return TestClient(Starlette(routes=[Mount("/orders", events)]))


def test_options_are_checked_by_the_constructor() -> None:
    with pytest.raises(ConfigError, match="`start` must be"):
        client(start="middle")
    with pytest.raises(ConfigError, match="leave out `group_id`"):
        client(group_id="g")
    with pytest.raises(ConfigError, match="unknown option"):
        client(no_such=1)


def test_invalid_requests_are_refused() -> None:
    with client() as http:
        assert http.post("/orders/").status_code == 405
        assert http.get("/orders/", headers={"Last-Event-ID": "nonsense"}).status_code == 400
        assert http.get("/orders/?last=0").status_code == 400
    with client(max_clients=0) as http:
        assert http.get("/orders/").status_code == 503


@pytest.mark.parametrize(
    ("options", "origin", "query", "code"),
    [
        ({}, "http://evil.example", "", 1008),
        ({}, "http://testserver", "?last=nonsense", 1008),
        ({"max_clients": 0}, "http://testserver", "", 1013),
        (
            {"max_clients": 0, "allowed_origins": ["http://shop.example"]},
            "http://shop.example",
            "",
            1013,
        ),
    ],
)
def test_invalid_web_sockets_are_refused(
    options: dict[str, Any], origin: str, query: str, code: int
) -> None:
    with client(**options) as http, pytest.raises(WebSocketDisconnect) as refused:  # noqa: SIM117
        with http.websocket_connect(f"/orders/{query}", headers={"Origin": origin}):
            pytest.fail("it was accepted")
    assert refused.value.code == code
