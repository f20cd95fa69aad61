"""The timestamp in the header of a record set, of each format."""

import pytest

from asyncconsumer.records.first_timestamp import first_timestamp
from tests.support.record_encoder import Row, batch, message

pytestmark = pytest.mark.fast


def test_the_timestamp_of_the_first_record_is_returned() -> None:
    rows = [Row(5, timestamp=1234), Row(6, timestamp=9999)]
    assert first_timestamp(batch(rows, codec=1) + batch([Row(7, timestamp=8)])) == 1234
    assert first_timestamp(memoryview(message(3, timestamp=77, key=None, value=None))) == 77


def test_a_message_without_a_timestamp_has_none() -> None:
    assert first_timestamp(message(3, magic=0)) == -1


def test_too_few_bytes_have_no_timestamp() -> None:
    assert first_timestamp(b"") == -1
    assert first_timestamp(batch([Row(5)])[:20]) == -1
