"""The examples of README.md and docs/*.md run."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from asyncconsumer.testing.handles import KafkaHandle, KafkaWithZooKeeper
from tests.support.helpers import produce

pytest_plugins = ["pytester"]

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, text in DOCUMENTS.items()
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1)
]

SERVICES = {
    path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")
}
"""The example programs, which have tests of their own."""

WITH_EXAMPLES = (
    "README.md",
    "docs/configuration.md",
    "docs/handlers.md",
    "docs/migrating-from-faststream.md",
    "docs/producing.md",
    "docs/spark.md",
    "docs/testing.md",
)
"""Documents that must have an example."""


def examples(kind: str) -> list[ParameterSet]:
    """Return the examples of a kind."""
    return [each for each in EXAMPLES if kind_of(str(each.values[0])) == kind]


def kind_of(example: str) -> str:
    """Return `test`, `service` (runs until stopped), `excerpt` (of examples/) or `program`."""
    if any(example in source for source in SERVICES.values()):
        return "excerpt"
    if "def test_" in example:
        return "test"
    assert "asyncio.run(" in example, "an example must be a program or a test"
    return "service" if "localhost:9092" in example else "program"


def commands(document: str, section: str = "") -> list[str]:
    """Return the command lines in a document, or in one of its sections, that need a cluster."""
    text = DOCUMENTS[document]
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    console = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    needs_cluster = r"\$ (.*\basyncconsumer (?:consume|dlq|doctor|groups|lag|produce|topics) .*)"
    return re.findall(needs_cluster, console.replace("\\\n", ""))


async def run_command(command: str, names: dict[str, str], **environment: str) -> str:
    """Run a command line in a shell, with other names than in the document."""
    for written, real in names.items():
        command = re.sub(rf"\b{re.escape(written)}\b", real, command)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", command],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path, **environment},
    )
    return ran.stdout


ORDERS = """
import asyncio
import pytest
from _pytest.mark.structures import ParameterSet
from aiokafka import AIOKafkaProducer
from asyncconsumer.testing.servers.spark import spark_session

@pytest.fixture
def orders(kafka):
    async def send():
        topic = await kafka.topic()
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for customer, amount in (("ann", 1), ("bob", 4), ("ann", 2)):
                value = '{"customer": "%s", "amount": %d}' % (customer, amount)
                await producer.send_and_wait(topic, value.encode())
        return topic

    return asyncio.run(send())

@pytest.fixture(scope="session")
def spark():
    with spark_session("local[1]") as session:
        session.sparkContext.parallelize([1], 1).map(abs).count()  # opens Spark's sockets
        yield session
"""


def test_every_python_block_is_an_example_that_runs() -> None:
    blocks = {
        name: len(re.findall(r"^\s*```py", text, re.MULTILINE)) for name, text in DOCUMENTS.items()
    }
    kinds = ("program", "service", "test", "excerpt")
    collected = [str(each.id).rpartition("-")[0] for kind in kinds for each in examples(kind)]
    assert {name: collected.count(name) for name in DOCUMENTS} == blocks
    assert {name for name in WITH_EXAMPLES if not blocks[name]} == set()


def test_every_link_has_a_target_file() -> None:
    missing = {
        f"{name}: {link}"
        for name, text in DOCUMENTS.items()
        for link in re.findall(r"\]\(([^)#:]+)\)", text)
        if not (ROOT / name).parent.joinpath(link).exists()
    }
    assert missing == set()


def public_modules() -> set[str]:
    """Return the modules that DESIGN.md declares public."""
    design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    declaration = design.partition("**Public API.**")[2].partition(". The packages")[0]
    testing = (ROOT / "asyncconsumer" / "testing").iterdir()
    return {
        *re.findall(r"`(asyncconsumer[\w.]*)`", declaration),
        *(f"asyncconsumer.testing.{path.name}" for path in testing if path.is_dir()),
    }


def test_examples_import_public_modules_only() -> None:
    sources = [*(str(example.values[0]) for example in EXAMPLES), *SERVICES.values()]
    imported = {
        name
        for source in sources
        for name in re.findall(r"^(?:from|import) (asyncconsumer[\w.]*)", source, re.MULTILINE)
    }
    assert "asyncconsumer.spark" in imported
    assert imported - public_modules() == set()


@pytest.mark.parametrize("program", examples("program"))
def test_a_program_runs(program: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=120)


@pytest.mark.parametrize("service", examples("service"))
async def test_a_service_reads_records(kafka: KafkaHandle, service: str) -> None:
    topic = await kafka.topic()
    servers = kafka.bootstrap_servers
    await produce(topic, [b'{"id": %d}' % n for n in range(3)], bootstrap_servers=servers)
    names = {"localhost:9092": servers, '"orders"': f'"{topic}"', '"billing"': f'"{kafka.group()}"'}
    for written, real in names.items():
        service = service.replace(written, real)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", service, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            lines = [await process.stdout.readline() for _ in range(3)]
        assert len({line for line in lines if line.strip()}) == 3
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize("example", examples("test"))
def test_a_test_passes_in_a_project_without_any_configuration(
    example: str, pytester: pytest.Pytester
) -> None:
    if "orders, spark" in example:  # fixtures of the user
        pytester.makeconftest(ORDERS)
    pytester.makepyfile(example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 0
    outcomes = result.parseoutcomes()
    assert outcomes.pop("passed") == example.count("def test_")
    assert not outcomes  # no test was skipped, and there was no warning


def test_the_readme_shows_commands_that_are_tested() -> None:
    assert set(commands("README.md")) <= set(commands("docs/command-line.md"))


async def test_the_commands_for_zookeeper_groups_run(kafka_zk: KafkaWithZooKeeper) -> None:
    topic = await kafka_zk.topic(partitions=3)
    await produce(
        topic, [b"%d" % n for n in range(60)], bootstrap_servers=kafka_zk.bootstrap_servers
    )
    group = kafka_zk.group()
    names = {"localhost:2181": kafka_zk.zookeeper_connect, "orders": topic, "billing": group}
    printed = [
        await run_command(command, names)
        for command in commands("docs/command-line.md", "ZooKeeper groups")
    ]
    first, listed, described, _, second, migrated = printed
    assert sorted(map(int, first.split())) == list(range(60))
    assert group in listed
    assert described.count(topic) == 3 == migrated.count(topic)
    assert [line.split()[0] for line in second.splitlines()] == [topic] * 10


async def test_the_commands_for_daily_tasks_run(kafka: KafkaHandle) -> None:
    topic, group = kafka.group(), kafka.group()
    await kafka.admin.create_topic(f"{topic}.dead")
    names = {"orders": topic, "billing": group}
    printed = {
        command: await run_command(
            command, names, ASYNCCONSUMER_BOOTSTRAP_SERVERS=kafka.bootstrap_servers
        )
        for command in commands("docs/command-line.md", "Daily tasks")
    }
    value = '{"id": 1}'
    texts = {re.sub("^.*asyncconsumer ", "", command): text for command, text in printed.items()}
    assert texts["consume orders --until end"] == f"{value}\n"
    [record] = texts["consume orders --tail 10 --until end --json"].splitlines()
    assert (json.loads(record)["key"], json.loads(record)["value"]) == ("customer-1", value)
    assert texts["consume orders --group billing --from earliest --until end"] == f"{value}\n"
    assert group in texts["groups list"]
    assert texts["groups describe billing"].count(topic) == 6
