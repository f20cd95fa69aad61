"""The grace period of a worker process."""

from typing import Any

import pytest

from asyncconsumer import ConsumerApp
from asyncconsumer.workers.process import APP_GRACE, WorkerSpec
from asyncconsumer.workers.worker import WorkerRuntime
from tests.support.example_services import ROOT

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


async def test_the_grace_of_the_app_is_the_default() -> None:
    app = ConsumerApp(bootstrap_servers="k:1", group_id="g", shutdown_grace_ms=1_234)
    line: Any = None  # not used yet
    assert [WorkerRuntime(app, line, grace)._grace_ms for grace in (None, 5)] == [1_234, 5]
    job = WorkerSpec(target="shop:app", grace=None, uvloop=False)
    assert job.command(1, 3)[-3:] == [APP_GRACE, "asyncio", "text"]
