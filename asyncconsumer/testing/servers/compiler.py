"""A cache of small Java programs, which are compiled when they are first used.

The compiler is the jar of Eclipse, so that a Java runtime suffices and a JDK is not needed.
"""

import asyncio
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from asyncconsumer.testing.servers import maven
from asyncconsumer.testing.servers.errors import CompileFailed
from asyncconsumer.testing.servers.java import java_command

_COMPILER: Final = "org.eclipse.jdt:ecj:3.44.0"
_MAIN: Final = "org.eclipse.jdt.internal.compiler.batch.Main"
_OPTIONS: Final = ("-17", "-proc:none", "-nowarn", "-encoding", "UTF-8")


async def compiled(
    source: Path, java: Path, jars: Sequence[Path], progress: maven.Progress = maven.no_progress
) -> Path:
    """Compile a Java program, unless it is cached. Return the folder with its classes.

    `jars` are the libraries that the program needs.
    """
    name = "-".join(_COMPILER.split(":")[1:])
    compiler = await maven.class_path(name, [_COMPILER], progress)
    return await asyncio.to_thread(_compiled, source, java, jars, compiler)


def _compiled(source: Path, java: Path, jars: Sequence[Path], compiler: Sequence[Path]) -> Path:
    against = " ".join((_COMPILER, *_OPTIONS, *(jar.name for jar in jars)))
    version = hashlib.sha256(source.read_bytes() + against.encode()).hexdigest()[:16]
    target = maven.cache_folder() / "classes" / f"{source.stem}-{version}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="compiling-") as folder:
        classes = Path(folder, "classes")
        path = os.pathsep.join(map(str, jars))
        arguments = (*_OPTIONS, "-cp", path, "-d", str(classes), str(source))
        command = java_command(java, compiler, _MAIN, *arguments, heap="256m")
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CompileFailed(f"{source.name} does not compile:\n{ran.stdout}{ran.stderr}")
        try:
            classes.rename(target)  # atomic: complete or absent
        except OSError:
            if not target.exists():  # compiled by another process meanwhile
                raise
    return target
