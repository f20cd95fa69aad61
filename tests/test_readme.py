"""The README's examples run."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from asyncconsumer.testing.handles import KafkaWithZooKeeper
from tests.helpers import produce

pytest_plugins = ["pytester"]

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROGRAMS = [example for example in EXAMPLES if "asyncio.run(" in example]
TESTS = [example for example in EXAMPLES if "def test_" in example]

CONSOLE = "".join(re.findall(r"```console\n(.*?)```", README, re.DOTALL)).replace("\\\n", "")
COMMANDS = re.findall(r"\$ asyncconsumer ((?:consume|groups) .*)", CONSOLE)

ORDERS = """
import asyncio
import pytest
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
        session.sparkContext.parallelize([1], 1).map(abs).count()  # opens what Spark keeps open
        yield session
"""


def test_every_example_is_a_program_or_a_test() -> None:
    assert len(PROGRAMS) + len(TESTS) == len(EXAMPLES) > 2


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs(program: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, timeout=120)


@pytest.mark.parametrize("example", TESTS)
def test_a_test_passes_in_a_project_without_any_configuration(
    example: str, pytester: pytest.Pytester
) -> None:
    if "orders, spark" in example:  # fixtures that it says are the user's
        pytester.makeconftest(ORDERS)
    pytester.makepyfile(example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 0
    outcomes = result.parseoutcomes()
    assert outcomes.pop("passed") == example.count("def test_")
    assert not outcomes  # nothing was skipped, nor warned of


async def test_the_commands_on_groups_run(kafka_zk: KafkaWithZooKeeper) -> None:
    topic = await kafka_zk.topic(partitions=3)
    await produce(
        topic, [b"%d" % n for n in range(60)], bootstrap_servers=kafka_zk.bootstrap_servers
    )
    group = kafka_zk.group()
    names = {"localhost:2181": kafka_zk.zookeeper_connect, "orders": topic, "billing": group}
    printed = []
    for command in COMMANDS:
        for written, real in names.items():
            command = re.sub(rf"\b{written}\b", real, command)
        program = [sys.executable, "-c", "from asyncconsumer.cli import main; main()"]
        ran = await asyncio.to_thread(
            subprocess.run,
            [*program, *shlex.split(command)],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        printed.append(ran.stdout)
    first, listed, described, _, second, migrated = printed
    assert sorted(map(int, first.split())) == list(range(60))
    assert group in listed
    assert described.count(topic) == 3 == migrated.count(topic)
    assert [line.split()[0] for line in second.splitlines()] == [topic] * 10
