"""The tree of znodes and the effect of requests on it, without time or network."""

from typing import TYPE_CHECKING, Any, Final

from aiozk import protocol
from aiozk.protocol import WatchEvent
from aiozk.protocol.request import Request

from asyncconsumer.errors import (
    BadArguments,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    TransactionFailed,
    ZooKeeperError,
)
from asyncconsumer.zookeeper.requests import ANY_VERSION, Stat, WatchNotification, ZnodeData

if TYPE_CHECKING:
    from collections.abc import Callable

_EPHEMERAL: Final = protocol.CreateRequest.EPHEMERAL_FLAG
_SEQUENTIAL: Final = protocol.CreateRequest.SEQUENTIAL_FLAG


class Znode:
    """A znode of the fake, with its data and versions."""

    __slots__ = ("changes", "children", "created", "data", "modified", "owner", "version")

    def __init__(self, data: bytes | None, owner: int, zxid: int) -> None:
        self.data = data
        self.owner = owner  # the session of an ephemeral node, otherwise 0
        self.version = 0
        self.changes = 0  # the version of its children
        self.created = self.modified = zxid
        self.children: dict[str, None] = {}  # in order of creation; a set has no order

    @property
    def stat(self) -> Stat:
        """Return the znode's metadata without times of day, so that a replay is identical."""
        size, count = len(self.data or b""), len(self.children)
        zxids = self.created, self.modified
        return Stat(*zxids, 0, 0, self.version, self.changes, 0, self.owner, size, count, 0)


class Tree:
    """A tree of znodes. `events` collects watch events until `take_events` returns them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0)}
        self.zxid = 0
        self.events: list[WatchNotification] = []
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._undo: list[Callable[[], object]] = []
        self._verbs: dict[int, Callable[[Request, int], Any]] = {
            protocol.GetDataRequest.opcode: self._get,
            protocol.ExistsRequest.opcode: self._exists,
            protocol.GetChildrenRequest.opcode: self._children,
            protocol.SyncRequest.opcode: lambda request, _: request.path,
            protocol.CreateRequest.opcode: self._create,
            protocol.SetDataRequest.opcode: self._set,
            protocol.DeleteRequest.opcode: self._delete,
            protocol.CheckVersionRequest.opcode: self._check,
            protocol.TransactionRequest.opcode: self._transaction,
        }

    def apply(self, request: Request, session_id: int = 0) -> Any:  # noqa: ANN401 - the result depends on the request
        """Apply a request of a session and return its result.

        If the request fails, raise its error and change nothing, also for a transaction.
        """
        verb = self._verbs.get(request.opcode)
        if verb is None:
            raise ZooKeeperError("/", f"the fake does not support opcode {request.opcode}")
        self._undo.clear()
        return verb(request, session_id)

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral znodes of a session."""
        self.zxid += 1
        for path in self._ephemerals.pop(session_id, ()):
            self._remove(path)

    def take_events(self) -> list[WatchNotification]:
        """Return the watch events since the last call of this method."""
        events, self.events = self.events, []
        return events

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral znodes."""
        return list(self._ephemerals.get(session_id, ()))

    # --- reads -----------------------------------------------------------------------------------

    def _get(self, request: Request, _: int) -> ZnodeData:
        node = self._existing(request.path)
        return ZnodeData(node.data, node.stat)

    def _exists(self, request: Request, _: int) -> Stat:
        return self._existing(request.path).stat

    def _children(self, request: Request, _: int) -> list[str]:
        return list(self._existing(request.path).children)

    def _existing(self, path: str) -> Znode:
        if (node := self.nodes.get(path)) is None:
            raise NoNode(path)
        return node

    # --- writes ----------------------------------------------------------------------------------

    def _create(self, request: Request, session_id: int) -> str:
        path = request.path
        parent_path = path.rpartition("/")[0] or "/"
        parent = self._existing(parent_path)
        if request.flags & _SEQUENTIAL:
            path += f"{parent.changes:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        if path.endswith("/"):
            raise BadArguments(path)
        self.zxid += 1
        owner = session_id if request.flags & _EPHEMERAL else 0
        self.nodes[path] = Znode(request.data, owner, self.zxid)
        parent.children[path.rpartition("/")[2]] = None
        parent.changes += 1
        if owner:
            self._ephemerals.setdefault(owner, {})[path] = None
        self.events += (
            WatchNotification(WatchEvent.CREATED, path),
            WatchNotification(WatchEvent.CHILDREN_CHANGED, parent_path),
        )
        self._undo.append(lambda: self._forget(path, changes=-1))
        return str(path)

    def _set(self, request: Request, _: int) -> Stat:
        node = self._versioned(request)
        before = node.data, node.version, node.modified
        self.zxid += 1
        node.data, node.version, node.modified = request.data, node.version + 1, self.zxid
        self.events.append(WatchNotification(WatchEvent.DATA_CHANGED, request.path))

        def undo() -> None:
            node.data, node.version, node.modified = before

        self._undo.append(undo)
        return node.stat

    def _delete(self, request: Request, _: int) -> None:
        path = request.path
        node = self._versioned(request)
        if node.children:
            raise NotEmpty(path)
        self.zxid += 1
        self._forget(path)
        self.events += _deletions(path)

        def undo() -> None:
            parent, _, name = path.rpartition("/")
            self.nodes[path] = node
            above = self.nodes[parent or "/"]
            above.children[name] = None
            above.changes -= 1
            if node.owner:
                self._ephemerals.setdefault(node.owner, {})[path] = None

        self._undo.append(undo)

    def _check(self, request: Request, _: int) -> None:
        self._versioned(request)

    def _versioned(self, request: Request) -> Znode:
        node = self._existing(request.path)
        if request.version not in (ANY_VERSION, node.version):
            raise BadVersion(request.path)
        return node

    def _transaction(self, request: Request, session_id: int) -> list[Any]:
        results: list[Any] = []
        event_count, zxid = len(self.events), self.zxid
        for index, part in enumerate(request.requests):
            try:
                results.append(self._verbs[part.opcode](part, session_id))
            except ZooKeeperError as error:
                del self.events[event_count:]
                self.zxid = zxid
                for undo in reversed(self._undo):
                    undo()
                raise TransactionFailed(part.path, index, str(error)) from error
        return results

    def _remove(self, path: str) -> None:
        self._forget(path)
        self.events += _deletions(path)

    def _forget(self, path: str, changes: int = 1) -> None:
        node = self.nodes.pop(path)
        parent, _, name = path.rpartition("/")
        above = self.nodes[parent or "/"]
        del above.children[name]
        above.changes += changes
        if node.owner:
            self._ephemerals.get(node.owner, {}).pop(path, None)


def _deletions(path: str) -> tuple[WatchNotification, WatchNotification]:
    parent = path.rpartition("/")[0] or "/"
    return WatchNotification(WatchEvent.DELETED, path), WatchNotification(
        WatchEvent.CHILDREN_CHANGED, parent
    )
