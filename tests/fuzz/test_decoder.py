"""A short run of the fuzzer in every test run; `make fuzz` is the long one."""

import pytest

from tests.fuzz.decoder import GROWTH_ALLOWED, fuzz
from tests.fuzz.mutate import ENTRIES

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("part", range(4))
def test_decoders_agree_on_mutated_inputs_and_memory_stays_flat(part: int) -> None:
    assert fuzz(50_000, seed=2024, first_block=part * 50) < GROWTH_ALLOWED


def test_the_inputs_are_valid_before_the_mutations() -> None:
    from asyncconsumer.records.decoding import Records

    for entry in ENTRIES:
        list(Records(entry, topic="t", partition=0))
