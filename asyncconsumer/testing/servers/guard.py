"""A guard process, which runs a server and ends it when the process that started the guard ends.

The guard is the program `guard.py FOLDER COMMAND...`. It uses only the standard library, so that it
starts in milliseconds. Its standard input is a pipe that the starter never writes to. If the
starter dies, the pipe closes, and the guard kills the server and removes FOLDER. The guard's first
line of output is the process id of the server.
"""

import os
import select
import shutil
import signal
import subprocess
import sys


def main(folder: str, command: list[str]) -> int:
    """Run `command` until it ends, or until the process that started this one ends.

    In the second case, kill `command` and remove `folder`. Return the exit code of `command`, which
    is 128 plus the signal's number after a signal.
    """
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
