"""Valid inputs, and mutations of them."""

import struct
from random import Random

from tests.records.test_fetch_response import VERSIONS, full
from tests.support.record_encoder import (
    CODECS,
    Row,
    batch,
    compress,
    control,
    message,
    wrapper,
    xerial,
)

HEADERS = (("a", b"1"), ("é", None))


def few(first: int) -> list[Row]:
    return [Row(first, b"value" * 3, b"k", headers=HEADERS), Row(first + 1, None, b"", 5)]


INNER = message(0, b"a") + message(1, b"b" * 20)
INNER_0 = message(0, b"a", magic=0) + message(1, None, magic=0)

ENTRIES = [
    *(batch(few(10 * codec), codec=codec) for codec in CODECS.values()),
    batch(few(50), attributes=0x10, producer=7),
    batch(few(52), attributes=8, producer=8),
    control(54, 7, 0),
    control(55, 8, 1),
    batch([], base=56, delta=3),
    *(batch(compress(codec, b""), base=56, delta=3, codec=codec) for codec in (1, 2, 3, 4)),
    batch([Row(60, b"x" * 200)], delta=9, epoch=3),
    batch(xerial(b"".join([b"\x14\0\0\0\x02k\x06val\0"[:11]] * 2), 8), base=70, codec=2, count=2),
    message(80, magic=0),
    message(81, None),
    *(wrapper(INNER, 91 + codec * 2, codec=codec) for codec in (1, 2, 3)),
    *(wrapper(INNER_0, 1, codec=codec, magic=0) for codec in (1, 2, 3)),
]

FRAMES = [(version, full(version)) for version in VERSIONS]

NUMBERS = [0, 1, -1, -2, 2, 7, 127, 128, 2**15, 2**31 - 1, -(2**31), 2**30, 61, 49]
LONGS = [2**63 - 1, -(2**63), -1, 2**62, 2**32, 2**63 - 2]
VARINTS = [b"\xff" * 10, b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80\x00", b"\xff\xff\xff\xff\x0f"]


def record_set(rng: Random) -> bytearray:
    return bytearray(b"".join(rng.choices(ENTRIES, k=rng.choice((1, 1, 2, 3)))))


def mutate(data: bytearray, rng: Random) -> None:
    """Make one change in place. Most changes keep the length, so that parsers get far."""
    offset = rng.randrange(len(data)) if data else 0
    match rng.randrange(10):
        case 0 | 1 | 2 if data:
            data[offset] = rng.randrange(256)
        case 3 if data:
            data[offset] ^= 1 << rng.randrange(8)
        case 4:
            data[offset : offset + 4] = struct.pack(">i", rng.choice(NUMBERS))
        case 5:
            data[offset : offset + 8] = struct.pack(">q", rng.choice(LONGS))
        case 6:
            number = rng.choice(VARINTS)
            data[offset : offset + len(number)] = number
        case 7:
            del data[offset:]
        case 8:
            del data[offset : offset + rng.randrange(1, 9)]
        case _:
            data[offset:offset] = data[offset : offset + rng.randrange(1, 40)]
