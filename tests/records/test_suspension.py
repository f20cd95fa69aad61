"""A jump of one of the real clocks of the decoders, by a replaced `clock_gettime` in a process."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast
ROOT = Path(__file__).parents[2]

SHIM = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long jump;

void suspend(long seconds) { jump += seconds; }

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_BOOTTIME)
        now->tv_sec += jump;
    return failed;
}
"""

PROGRAM = """
import asyncio, ctypes, sys
from asyncconsumer.aio.suspensions import Suspensions
from asyncconsumer.records import decoding
from tests.support.chunks import A, chunk

async def main():
    suspensions = Suspensions()
    asked = []
    async def refill():
        asked.append(len(got))
        records.deadline = asyncio.get_running_loop().time() + 3600
        return held.records
    held, got = chunk(A, 0), []
    records = decoding.AsyncRecords(refill)
    async for record in records:
        got.append(record.offset)
        if len(got) == 2:
            ctypes.CDLL(None).suspend(7200)
        if len(got) == 3:
            break
    print(decoding.AsyncRecords.__module__, got, asked, round(suspensions.since(0.0)))

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD and CLOCK_BOOTTIME")
@pytest.mark.parametrize("decoder", ["compiled", "pure"])
def test_a_record_after_a_suspension_is_not_delivered_without_refill(
    decoder: str, tmp_path: Path
) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip("no C compiler")
    source, shim = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source], check=True)
    preloaded = f"{os.environ.get('LD_PRELOAD', '')} {shim}".strip()  # a sanitizer must be first
    messages = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LD_PRELOAD": preloaded, "ASYNCCONSUMER_DECODER": decoder},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split(maxsplit=1)
    assert messages[1].strip() == "[0, 1, 2] [0, 2] 7200"
