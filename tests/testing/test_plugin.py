"""The pytest plugin, in separate test runs."""

import re
from collections.abc import Callable

import psutil
import pytest

pytest_plugins = ["pytester"]

Check = Callable[..., pytest.RunResult]


@pytest.fixture
def check(pytester: pytest.Pytester) -> Check:
    """Return a function that runs a test module in a separate process."""

    def run(body: str, *arguments: str, leftovers: str = "all") -> pytest.RunResult:
        pytester.makeini(
            f"[pytest]\nasyncio_mode = auto\nasyncconsumer_leftovers = {leftovers}\n"
            "asyncio_default_fixture_loop_scope = function\n"
        )
        pytester.makepyfile(body)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    return run


@pytest.mark.fast
def test_the_header_names_decoder_and_server_versions(check: Check) -> None:
    result = check("def test(): pass")
    result.stdout.re_match_lines(
        [r"asyncconsumer .*: (compiled|pure) decoder; .*Kafka 4\..*ZooKeeper"]
    )


LEAKS = {
    "task": """
        import asyncio
        async def wait_for_ever(): await asyncio.Event().wait()
        kept = []
        async def test():
            kept.append(asyncio.get_running_loop().create_task(wait_for_ever(), name="forgotten"))
        """,
    "thread": """
        import threading
        stop = threading.Event()
        def test():
            threading.Thread(target=stop.wait, args=[20], name="forgotten", daemon=True).start()
        """,
    "socket": """
        import socket
        kept = []
        def test():
            kept.append(socket.create_server(("127.0.0.1", 0)))
        """,
    "process": """
        import atexit, subprocess
        def test():
            atexit.register(subprocess.Popen(["sleep", "20"]).kill)
        """,
    "socket of a fixture": """
        import pytest, socket
        kept = []
        @pytest.fixture
        def careless():
            kept.append(socket.create_server(("127.0.0.1", 0)))
        def test(careless): pass
        """,
    "task of a fixture": """
        import asyncio, pytest_asyncio
        async def wait_for_ever(): await asyncio.Event().wait()
        kept = []
        @pytest_asyncio.fixture
        async def careless():
            kept.append(asyncio.get_running_loop().create_task(wait_for_ever()))
        async def test(careless): pass
        """,
}


@pytest.mark.fast
@pytest.mark.parametrize("kind", LEAKS)
def test_a_test_with_leftovers_fails(check: Check, kind: str) -> None:
    result = check(LEAKS[kind])
    result.assert_outcomes(passed=1, errors=1)
    assert re.search(rf"the test left behind: {kind.split()[0]}", result.stdout.str())


@pytest.mark.fast
@pytest.mark.parametrize("leftovers", ["off", "fixtures"])
def test_unrelated_tests_are_not_checked(check: Check, leftovers: str) -> None:
    check(LEAKS["socket"], leftovers=leftovers).assert_outcomes(passed=1)


@pytest.mark.fast
def test_a_marker_excepts_a_test(check: Check) -> None:
    excepted = LEAKS["socket"].replace(
        "def test(", "import pytest\n        @pytest.mark.allow_leftovers('why')\n        def test("
    )
    check(excepted).assert_outcomes(passed=1)


@pytest.mark.fast
def test_only_the_test_with_leftovers_fails(check: Check) -> None:
    check(LEAKS["socket"] + "\n        def test_after(): pass").assert_outcomes(passed=2, errors=1)


@pytest.mark.fast
def test_objects_of_a_module_fixture_are_no_leftovers(check: Check) -> None:
    check("""
        import pytest, socket
        @pytest.fixture(scope="module")
        def server():
            with socket.create_server(("127.0.0.1", 0)) as listening: yield listening
        def test(server): pass
        def test_again(server): pass
        """).assert_outcomes(passed=2)


@pytest.mark.fast
def test_threads_of_c_libraries_are_not_reported(check: Check) -> None:
    check("""
        import _thread, threading
        known, stop = threading.Event(), threading.Event()
        def foreign():
            threading.current_thread()  # from now on, Python lists the thread forever
            known.set()
            stop.wait(20)
        def test():
            _thread.start_new_thread(foreign, ())
            assert known.wait(20)
        """).assert_outcomes(passed=1)


@pytest.mark.fast
def test_a_wrong_setting_is_reported(check: Check) -> None:
    result = check("def test(): pass", leftovers="sometimes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*asyncconsumer_leftovers must be fixtures, all or off, got 'sometimes'*"]
    )


@pytest.mark.fast
def test_fixtures_without_the_testing_extra_fail_with_advice(
    check: Check, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(sitecustomize="import sys; sys.modules['psutil'] = None")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    result = check("def test(kafka): pass\ndef test_unrelated(): pass")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*need psutil: pip install 'asyncconsumer[[]testing[]]'*"])


def test_a_server_that_cannot_start_ends_the_run_with_a_message(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = check("async def test(zookeeper): pass")
    assert result.ret == 3
    assert "needs Java" in result.stdout.str() + result.stderr.str()


def test_each_server_starts_once_and_ends_with_the_run(check: Check) -> None:
    result = check(
        """
        seen = []
        def note(zookeeper): seen.append((zookeeper.connect, zookeeper.server.nodes[0].process.pid))
        async def test_one(zookeeper): note(zookeeper)
        async def test_two(zookeeper): note(zookeeper)
        def test_both_get_the_same_server():
            print("server", seen[0][1])
            assert seen[0] == seen[1]
        """,
        "-s",
    )
    result.assert_outcomes(passed=3)
    (pid,) = re.findall(r"server (\d+)", result.stdout.str())
    assert not psutil.pid_exists(int(pid))
