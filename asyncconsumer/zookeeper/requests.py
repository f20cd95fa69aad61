"""The requests to ZooKeeper, and the parsers of their responses.

The request classes are those of aiozk. Responses are parsed here: aiozk's parsers do not check
lengths, and take four times as long for a list of children.
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
Acl: TypeAlias = tuple[Any, ...]  # a tuple of aiozk's ACL entries

_INT: Final = struct.Struct(">i")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_PART: Final = struct.Struct(">i?i")  # before each part of a transaction response: type, end, error


class Stat(NamedTuple):
    """The metadata of a znode: versions, zxids, owner session and size."""

    created_zxid: int
    modified_zxid: int
    created: int
    modified: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int  # id of the session that owns the znode; 0 for a persistent one
    data_length: int
    children_count: int
    children_zxid: int


class ZnodeData(NamedTuple):
    """The data and metadata of a znode. `data` is None if it was created without data."""

    data: bytes | None
    stat: Stat


class WatchNotification(NamedTuple):
    """An event of a watch. `type` is one of aiozk's `WatchEvent` types."""

    type: int
    path: str


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """A request together with the parser of its response. `path` is named in errors."""

    path: str
    request: Request
    read: Callable[[memoryview], T_co]

    @property
    def name(self) -> str:
        """The name of the request, for messages."""
        return type(self.request).__name__.removesuffix("Request")


class Check(NamedTuple):
    """A part of a transaction that fails unless the znode has this version."""

    path: str
    version: int


class Create(NamedTuple):
    """A part of a transaction that creates a znode."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False


class SetData(NamedTuple):
    """A part of a transaction that replaces the data of a znode."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """A part of a transaction that deletes a znode."""

    path: str
    version: int = ANY_VERSION


ZnodeOperation: TypeAlias = Check | Create | SetData | Delete


# --- answers -----------------------------------------------------------------------------------


def read_stat(body: memoryview, offset: int = 0) -> Stat:
    """Parse the metadata of a znode at `offset` in a response."""
    return Stat._make(_STAT.unpack_from(body, offset))


def read_node(body: memoryview) -> ZnodeData:
    """Parse the data and metadata of a znode."""
    data, offset = _buffer(body, 0)
    return ZnodeData(data, read_stat(body, offset))


def read_children(body: memoryview) -> list[str]:
    """Parse the names of the children of a znode."""
    (count,) = _INT.unpack_from(body)
    if count > len(body) // 4:  # each takes 4 bytes for its length
        raise ValueError(f"{count} children in {len(body)} bytes")
    data, offset, names = bytes(body), 4, []
    length_at = _INT.unpack_from
    for _ in range(count):
        (length,) = length_at(data, offset)
        end = offset + 4 + length
        if not 0 <= length <= len(data) - offset - 4:
            raise ValueError(f"a name of {length} bytes at {offset} of {len(data)}")
        names.append(data[offset + 4 : end].decode())
        offset = end
    return names


def read_path(body: memoryview) -> str:
    """Parse the path of a znode."""
    return _text(body, 0)[0]


def read_event(body: memoryview) -> WatchNotification:
    """Parse a watch event: its type, the state of the session, and the path."""
    return WatchNotification(_INT.unpack_from(body)[0], _text(body, 8)[0])


def _nothing(_: memoryview) -> None:
    """Return None. This is the parser for a response without content."""


def _token(body: memoryview) -> bytes:
    return _buffer(body, 0)[0] or b""


def _buffer(body: memoryview, offset: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(body, offset)
    offset += 4
    if length < 0:
        return None, offset
    if length > len(body) - offset:
        raise ValueError(f"{length} bytes at {offset} of {len(body)}")
    return bytes(body[offset : offset + length]), offset + length


def _text(body: memoryview, offset: int) -> tuple[str, int]:
    data, offset = _buffer(body, offset)
    return (data or b"").decode(), offset


# --- requests ----------------------------------------------------------------------------------


def get(path: str, *, watch: bool = False) -> Call[ZnodeData]:
    """Return the request for the data and metadata of a znode.

    With `watch`, it also sets a watch.
    """
    return Call(path, protocol.GetDataRequest(path=path, watch=watch), read_node)


def exists(path: str, *, watch: bool = False) -> Call[Stat]:
    """Return the request for the metadata of a znode.

    With `watch`, it also sets a watch, even if the znode does not exist.
    """
    return Call(path, protocol.ExistsRequest(path=path, watch=watch), read_stat)


def children(path: str, *, watch: bool = False) -> Call[list[str]]:
    """Return the request for the names of a znode's children, in no order."""
    return Call(path, protocol.GetChildrenRequest(path=path, watch=watch), read_children)


def sync(path: str) -> Call[str]:
    """Return the request that makes the connected server catch up with the ensemble's leader."""
    return Call(path, protocol.SyncRequest(path=path), read_path)


def create(
    path: str, data: bytes | None, *, acl: Acl, ephemeral: bool = False, sequential: bool = False
) -> Call[str]:
    """Return the request that creates a znode. Its result is the final path."""
    request = protocol.CreateRequest(path=path, data=data, acl=list(acl))
    request.set_flags(ephemeral=ephemeral, sequential=sequential)
    return Call(path, request, read_path)


def set_data(path: str, data: bytes | None, version: int = ANY_VERSION) -> Call[Stat]:
    """Return the request that replaces the data of a znode if it has this version."""
    request = protocol.SetDataRequest(path=path, data=data, version=version)
    return Call(path, request, read_stat)


def delete(path: str, version: int = ANY_VERSION) -> Call[None]:
    """Return the request that deletes a znode without children if it has this version."""
    return Call(path, protocol.DeleteRequest(path=path, version=version), _nothing)


def check(path: str, version: int) -> Call[None]:
    """Return the request that fails its transaction unless the znode has this version."""
    return Call(path, protocol.CheckVersionRequest(path=path, version=version), _nothing)


def operation(znode_operation: ZnodeOperation, path: str, acl: Acl) -> Call[Any]:
    """Return the request for one part of a transaction.

    `path` is the full path, which begins with the chroot.
    """
    match znode_operation:
        case Check():
            return check(path, znode_operation.version)
        case Create():
            return create(path, znode_operation.data, acl=acl, ephemeral=znode_operation.ephemeral)
        case SetData():
            return set_data(path, znode_operation.data, znode_operation.version)
        case Delete():
            return delete(path, znode_operation.version)


def transaction(operations: Sequence[Call[Any]]) -> Call[list[Any]]:
    """Return the request that applies all operations or none.

    Its result is a list of their results.
    """
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
    """Return the results of a transaction's parts. Raise TransactionFailed if a part failed.

    `paths` has the znode path of each part, for the error.
    """
    # Operations before it were rolled back (0), those after it were not tried (-2).
    for index, part in enumerate(parts):
        if isinstance(part, ZooKeeperError) and part.code not in (0, -2):
            raise TransactionFailed(paths[index], index, str(part)) from part
    return list(parts)


def _transaction_parts(operations: Sequence[Call[Any]], body: memoryview) -> list[Any]:
    parts: list[Any] = []
    offset = 0
    for operation in operations:
        kind, end, _ = _PART.unpack_from(body, offset)
        offset += _PART.size
        if end:
            raise ValueError(f"{len(parts)} results of {len(operations)}")
        if kind == -1:
            parts.append(
                ZooKeeperError.from_code(_INT.unpack_from(body, offset)[0], operation.path)
            )
            offset += 4
            continue
        result = operation.read(body[offset:])
        parts.append(result)
        offset += _size(operation, result)
    return parts


def _size(operation: Call[Any], result: object) -> int:
    """Return how many bytes the result of an operation takes in the response of its transaction."""
    if isinstance(result, Stat):
        return _STAT.size
    return 4 + len(result.encode()) if isinstance(result, str) else 0


def digest_auth(user_and_password: str) -> Call[None]:
    """Return the request that logs in with the digest scheme."""
    auth = user_and_password.encode()
    return Call("/", protocol.AuthRequest(type=0, scheme="digest", auth=auth), _nothing)


class SaslRequest(Request):
    """A SASL request. aiozk's own class cannot be serialised, because its `parts` lack a comma."""

    opcode = 102
    parts = (("token", Buffer),)


def sasl(token: bytes) -> Call[bytes]:
    """Return the request for one step of a SASL login."""
    return Call("/", SaslRequest(token=token), _token)


def ping() -> Call[None]:
    """Return the ping request, which keeps the session alive."""
    return Call("/", protocol.PingRequest(), _nothing)


def close_session() -> Call[None]:
    """Return the request that ends the session. The server then deletes its ephemeral znodes."""
    return Call("/", protocol.CloseRequest(), _nothing)
