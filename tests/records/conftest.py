"""Fixtures that run a test with each available decoder."""

from types import ModuleType

import pytest

from asyncconsumer.records import decoding


@pytest.fixture(params=decoding.available())
def decoder(request: pytest.FixtureRequest) -> ModuleType:
    _, module = decoding.load(request.param)
    return module
