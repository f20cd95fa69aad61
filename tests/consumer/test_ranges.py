"""Invalid ranges of offsets."""

import pytest

from asyncconsumer import ConfigError, OffsetRange, RangeReader

pytestmark = pytest.mark.fast


async def test_an_invalid_range_is_refused() -> None:
    reader = RangeReader("localhost:9092")
    for start, end in ((-1, 5), (5, 4)):
        with pytest.raises(ConfigError, match="0 <= start <= end"):
            reader.read(OffsetRange("t", 0, start, end))
