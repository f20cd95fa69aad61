"""What ZooKeeper can be asked, and what its answers say.

Requests are aiozk's. Answers are read here: aiozk's classes make a struct for each few bytes, which
takes four times as long for a list of children, and check no length before they believe it.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from aiozk import protocol
from aiozk.protocol.primitives import Buffer
from aiozk.protocol.request import Request

from asyncconsumer.errors import TransactionFailed, ZooKeeperError

T_co = TypeVar("T_co", covariant=True)

ANY_VERSION: Final = -1
WORLD: Final = (protocol.UNRESTRICTED_ACCESS,)
CREATOR_ALL: Final = (protocol.AUTHED_UNRESTRICTED,)
Acl: TypeAlias = tuple[Any, ...]  # of aiozk's

_INT: Final = struct.Struct(">i")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_PART: Final = struct.Struct(">i?i")  # before each part of a transaction's answer: type, end, error


class Stat(NamedTuple):
    """What ZooKeeper knows of a node."""

    created_zxid: int
    modified_zxid: int
    created: int
    modified: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int  # the session that it belongs to; 0 for a persistent one
    data_length: int
    children_count: int
    children_zxid: int


class ZnodeData(NamedTuple):
    """A node's data and stat; the data of a node made without any is None."""

    data: bytes | None
    stat: Stat


class WatchNotification(NamedTuple):
    """What a watch was set for has happened: one of aiozk's WatchEvent types."""

    type: int
    path: str


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A request, and how to read its answer. `path` is for errors."""

    path: str
    request: Request
    read: Callable[[memoryview], T_co]

    @property
    def name(self) -> str:
        """What is asked, in a word."""
        return type(self.request).__name__.removesuffix("Request")


class Check(NamedTuple):
    """In a transaction: it fails unless the node has this version."""

    path: str
    version: int


class Create(NamedTuple):
    """In a transaction: a new node."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False


class SetData(NamedTuple):
    """In a transaction: new data for a node."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """In a transaction: a node less."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Check | Create | SetData | Delete


# --- answers -----------------------------------------------------------------------------------


def read_stat(body: memoryview, at: int = 0) -> Stat:
    """A stat, in one go."""
    return Stat._make(_STAT.unpack_from(body, at))


def read_node(body: memoryview) -> ZnodeData:
    """Data and stat."""
    data, at = _buffer(body, 0)
    return ZnodeData(data, read_stat(body, at))


def read_children(body: memoryview) -> list[str]:
    """The names of a node's children, in one pass."""
    (count,) = _INT.unpack_from(body)
    if count > len(body) // 4:  # each takes its length at least
        raise ValueError(f"{count} children in {len(body)} bytes")
    data, at, names = bytes(body), 4, []
    length_at = _INT.unpack_from
    for _ in range(count):
        (length,) = length_at(data, at)
        end = at + 4 + length
        if not 0 <= length <= len(data) - at - 4:
            raise ValueError(f"a name of {length} bytes at {at} of {len(data)}")
        names.append(data[at + 4 : end].decode())
        at = end
    return names


def read_path(body: memoryview) -> str:
    """A path."""
    return _text(body, 0)[0]


def read_event(body: memoryview) -> WatchNotification:
    """A watch event: type, the state of the session, path."""
    return WatchNotification(_INT.unpack_from(body)[0], _text(body, 8)[0])


def _nothing(_: memoryview) -> None:
    """Of an answer that says no more than that it is done."""


def _token(body: memoryview) -> bytes:
    return _buffer(body, 0)[0] or b""


def _buffer(body: memoryview, at: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(body, at)
    at += 4
    if length < 0:
        return None, at
    if length > len(body) - at:
        raise ValueError(f"{length} bytes at {at} of {len(body)}")
    return bytes(body[at : at + length]), at + length


def _text(body: memoryview, at: int) -> tuple[str, int]:
    data, at = _buffer(body, at)
    return (data or b"").decode(), at


# --- requests ----------------------------------------------------------------------------------


def get(path: str, *, watch: bool = False) -> Call[ZnodeData]:
    """A node's data and stat."""
    return Call(path, protocol.GetDataRequest(path=path, watch=watch), read_node)


def exists(path: str, *, watch: bool = False) -> Call[Stat]:
    """A node's stat; NoNode if it is not there, and the watch is set all the same."""
    return Call(path, protocol.ExistsRequest(path=path, watch=watch), read_stat)


def children(path: str, *, watch: bool = False) -> Call[list[str]]:
    """The names of a node's children, in no order."""
    return Call(path, protocol.GetChildrenRequest(path=path, watch=watch), read_children)


def sync(path: str) -> Call[str]:
    """Have our server catch up with the leader."""
    return Call(path, protocol.SyncRequest(path=path), read_path)


def create(
    path: str, data: bytes | None, *, acl: Acl, ephemeral: bool = False, sequential: bool = False
) -> Call[str]:
    """A new node; the answer is its path, which differs if it is sequential."""
    request = protocol.CreateRequest(path=path, data=data, acl=list(acl))
    request.set_flags(ephemeral=ephemeral, sequential=sequential)
    return Call(path, request, read_path)


def set_data(path: str, data: bytes | None, version: int = ANY_VERSION) -> Call[Stat]:
    """Replace a node's data, if it has that version."""
    request = protocol.SetDataRequest(path=path, data=data, version=version)
    return Call(path, request, read_stat)


def delete(path: str, version: int = ANY_VERSION) -> Call[None]:
    """Delete a node without children, if it has that version."""
    return Call(path, protocol.DeleteRequest(path=path, version=version), _nothing)


def check(path: str, version: int) -> Call[None]:
    """In a transaction: let it fail unless the node has that version."""
    return Call(path, protocol.CheckVersionRequest(path=path, version=version), _nothing)


def operation(what: Operation, path: str, acl: Acl) -> Call[Any]:
    """The request for a part of a transaction; `path` is its path as the server knows it."""
    match what:
        case Check():
            return check(path, what.version)
        case Create():
            return create(path, what.data, acl=acl, ephemeral=what.ephemeral)
        case SetData():
            return set_data(path, what.data, what.version)
        case Delete():
            return delete(path, what.version)


def transaction(operations: Sequence[Call[Any]]) -> Call[list[Any]]:
    """All of them or none. The answer has what each would have answered alone."""
    request = protocol.TransactionRequest()
    for operation in operations:
        request.add(operation.request)
    paths = [operation.path for operation in operations]
    return Call(
        ", ".join(dict.fromkeys(paths)) or "/",
        request,
        lambda body: transaction_results(paths, _transaction_parts(operations, body)),
    )


def transaction_results(paths: Sequence[str], parts: Sequence[Any]) -> list[Any]:
    """The results, or a TransactionFailed for the operation at fault."""
    # those before it are rolled back (0), those behind it were not tried (-2)
    for index, part in enumerate(parts):
        if isinstance(part, ZooKeeperError) and part.code not in (0, -2):
            raise TransactionFailed(paths[index], index, str(part)) from part
    return list(parts)


def _transaction_parts(operations: Sequence[Call[Any]], body: memoryview) -> list[Any]:
    parts: list[Any] = []
    at = 0
    for operation in operations:
        kind, end, _ = _PART.unpack_from(body, at)
        at += _PART.size
        if end:
            raise ValueError(f"{len(parts)} results of {len(operations)}")
        if kind == -1:
            parts.append(ZooKeeperError.of(_INT.unpack_from(body, at)[0], operation.path))
            at += 4
            continue
        result = operation.read(body[at:])
        parts.append(result)
        at += _size(operation, result)
    return parts


def _size(operation: Call[Any], result: object) -> int:
    """How many bytes of a transaction's answer a result took."""
    if isinstance(result, Stat):
        return _STAT.size
    return 4 + len(result.encode()) if isinstance(result, str) else 0


def digest_auth(user_and_password: str) -> Call[None]:
    """Say who we are, in the digest scheme."""
    auth = user_and_password.encode()
    return Call("/", protocol.AuthRequest(type=0, scheme="digest", auth=auth), _nothing)


class SaslRequest(Request):
    """aiozk's own cannot be serialised: its parts lack a comma."""

    opcode = 102
    parts = (("token", Buffer),)


def sasl(token: bytes) -> Call[bytes]:
    """One step of a SASL login."""
    return Call("/", SaslRequest(token=token), _token)


def ping() -> Call[None]:
    """A sign of life."""
    return Call("/", protocol.PingRequest(), _nothing)


def close_session() -> Call[None]:
    """End the session, and with it its ephemeral nodes."""
    return Call("/", protocol.CloseRequest(), _nothing)
