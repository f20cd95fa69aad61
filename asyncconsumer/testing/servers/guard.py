"""Runs one server and sees to it that it never outlives whoever started it.

Started as a program of its own (standard library only, so that it is up in milliseconds):
`guard.py FOLDER COMMAND...`. Its standard input is a pipe that the starter never writes to: when
the starter dies, however it dies, the pipe closes, the server is killed and FOLDER removed. Its
first line of output is the server's process id.
"""

import os
import select
import shutil
import signal
import subprocess
import sys


def main(folder: str, command: list[str]) -> int:
    """Run `command` until it ends or the starter does; the exit code as a shell would give it."""
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)

    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    os.write(sys.stdout.fileno(), f"{server.pid}\n".encode())
    while server.poll() is None:
        ready, _, _ = select.select([sys.stdin, wake_read], [], [])
        signals = os.read(wake_read, 64) if wake_read in ready else b""
        if sys.stdin in ready or signal.SIGTERM in signals or signal.SIGHUP in signals:
            server.kill()
            server.wait()
            shutil.rmtree(folder, ignore_errors=True)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
