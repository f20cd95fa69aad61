"""A client of a language server, for one completion in one file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Final

_REQUEST: Final = 2


def complete(command: list[str], folder: Path, text: str, line: int, column: int) -> set[str]:
    """Return the names that the server completes in `text`, a file of the project in `folder`."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            return _complete(server.stdin, server.stdout, folder, text, (line, column))
        finally:
            server.kill()


def _complete(
    stdin: IO[bytes], stdout: IO[bytes], folder: Path, text: str, position: tuple[int, int]
) -> set[str]:
    root, uri = folder.as_uri(), (folder / "completed.py").as_uri()
    place = {"uri": root, "name": folder.name}
    opened = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    cursor = dict(zip(("line", "character"), position, strict=True))
    _send(
        stdin,
        id=1,
        method="initialize",
        params={
            "processId": None,
            "rootUri": root,
            "workspaceFolders": [place],
            "capabilities": {"workspace": {"configuration": True}},
        },
    )
    while True:
        message = _receive(stdout)
        if "method" in message and "id" in message:
            _send(stdin, id=message["id"], result=_answer(message))
        elif message.get("id") == 1:
            _send(stdin, method="initialized", params={})
            _send(stdin, method="textDocument/didOpen", params={"textDocument": opened})
            params = {"textDocument": {"uri": uri}, "position": cursor}
            _send(stdin, id=_REQUEST, method="textDocument/completion", params=params)
        elif message.get("id") == _REQUEST:
            return {item["label"].removesuffix("=") for item in message["result"]["items"]}


def _answer(request: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the settings that the server asks for."""
    if request["method"] != "workspace/configuration":
        return None
    python = {"pythonPath": sys.executable}
    return [python if item["section"] == "python" else {} for item in request["params"]["items"]]


def _send(stdin: IO[bytes], **message: object) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    stdin.flush()


def _receive(stdout: IO[bytes]) -> dict[str, Any]:
    size = 0
    while header := stdout.readline().strip():
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    assert size, "the language server has ended"
    message: dict[str, Any] = json.loads(stdout.read(size))
    return message
