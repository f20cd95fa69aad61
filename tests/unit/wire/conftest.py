"""Every decoder present here gets the same suite."""

from types import ModuleType

import pytest

from asyncconsumer.wire import accel


@pytest.fixture(params=accel.available())
def decoder(request: pytest.FixtureRequest) -> ModuleType:
    _, module = accel.load(request.param)
    return module
