"""The threads, sockets and child processes of this process."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from threading import _DummyThread as Foreign  # started in C, and never forgotten
from typing import Final, Self

import psutil

_DESCRIPTORS: Final = Path("/proc/self/fd")  # sockets are visible only where this exists, on Linux
_THREADS: Final = Path("/proc/self/task")  # the kernel lists children by the thread that forked


@dataclass(frozen=True, slots=True)
class Resources:
    """The threads, sockets and child processes at one moment."""

    threads: frozenset[threading.Thread] = frozenset()
    sockets: frozenset[str] = frozenset()
    processes: frozenset[int] = frozenset()
    names: dict[object, str] = field(default_factory=dict, compare=False)

    @classmethod
    def held_now(cls) -> Self:
        """Return the resources that exist now."""
        threads = frozenset(
            thread
            for thread in threading.enumerate()
            if thread.is_alive() and not isinstance(thread, Foreign)
        )
        children = _children()
        names: dict[object, str] = {thread: f"thread {thread.name}" for thread in threads}
        for pid in children:
            names[pid] = f"process {pid} ({_command(pid)})"
        return cls(threads, _sockets(), children, names)

    def __sub__(self, other: Self) -> Self:
        return type(self)(
            self.threads - other.threads,
            self.sockets - other.sockets,
            self.processes - other.processes,
            self.names,
        )

    def __or__(self, other: Self) -> Self:
        return type(self)(
            self.threads | other.threads,
            self.sockets | other.sockets,
            self.processes | other.processes,
            self.names | other.names,
        )

    def __bool__(self) -> bool:
        return bool(self.threads or self.sockets or self.processes)

    def describe(self) -> list[str]:
        """Return a line of text for each resource."""
        objects: list[object] = [*self.threads, *self.processes]
        return [self.names.get(object_, str(object_)) for object_ in objects] + _addresses(
            self.sockets
        )


def describe_tasks(tasks: set[asyncio.Task[object]]) -> list[str]:
    """Return a line of text for each task: its name and the source line at which it waits."""
    lines = []
    for task in tasks:
        stack = task.get_stack(limit=1)
        place = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else "not started"
        lines.append(
            f"task {task.get_name()} of {getattr(task.get_coro(), '__qualname__', '?')}, {place}"
        )
    return sorted(lines)


def _children() -> frozenset[int]:
    try:
        lists = [path.read_text(encoding="ascii") for path in _THREADS.glob("*/children")]
    except FileNotFoundError:  # a thread that ended meanwhile
        lists = []
    if not lists:  # slower, because psutil reads the entry of every process on the machine
        return frozenset(child.pid for child in psutil.Process().children())
    return frozenset(int(pid) for pids in lists for pid in pids.split())


def _sockets() -> frozenset[str]:
    if not _DESCRIPTORS.exists():
        return frozenset()
    sockets = set()
    for descriptor in _DESCRIPTORS.iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # the descriptor of this listing
            continue
        if target.startswith("socket:"):
            sockets.add(target)
    return frozenset(sockets)


def _addresses(sockets: frozenset[str]) -> list[str]:
    """Return a line of text for each of these sockets that is still open, with its addresses."""
    by_descriptor = {c.fd: c for c in psutil.Process().net_connections(kind="all")}
    lines = []
    for descriptor in _DESCRIPTORS.iterdir() if sockets else ():
        if (target := str(descriptor.readlink()) if descriptor.is_symlink() else "") not in sockets:
            continue
        known = by_descriptor.get(int(descriptor.name))
        lines.append(f"{target} {known.laddr} -> {known.raddr} {known.status}" if known else target)
    return lines


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())[:200]
    except psutil.Error:
        return "ended"
