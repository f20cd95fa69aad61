"""Errors of ZooKeeper and of connections to it."""

from __future__ import annotations

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class ZooKeeperError(ConsumerError):
    """A request to ZooKeeper failed. ``path`` is the znode that the request is about."""

    code: int = -1
    advice: ClassVar[str] = ""
    by_code: ClassVar[dict[int, type[ZooKeeperError]]] = {}

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        if code is not None:
            cls.code = code
            ZooKeeperError.by_code[code] = cls

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        meaning = self.reason or (type(self).__doc__ or "").splitlines()[0].rstrip(".")
        return f"{self.path}: {meaning} (ZooKeeper error {self.code}). {self.advice}".rstrip(" ")

    @classmethod
    def from_code(cls, code: int, path: str) -> ZooKeeperError:
        """Return the error for an error code. The error for an unknown code has its number."""
        if known := cls.by_code.get(code):
            return known(path)
        error = ZooKeeperError(path, "ZooKeeper refused the request")
        error.code = code
        return error


class ConnectionLoss(ZooKeeperError, code=-4):
    """The connection was lost before the response arrived.

    ``maybe_applied`` is False if the request was not sent, so a write cannot have been applied.
    """

    retriable = True
    advice = "Read the current state before writing again"

    def __init__(self, path: str, reason: str = "", *, maybe_applied: bool = True) -> None:
        super().__init__(path, reason)
        self.maybe_applied = maybe_applied

    def __str__(self) -> str:
        reason = self.reason or "the connection was lost before the response arrived"
        advice = self.advice if self.maybe_applied else "Nothing was sent, so retry"
        return f"{self.path}: {reason}. {advice}"


class SessionExpired(ZooKeeperError, code=-112):
    """The session has expired, so its ephemeral znodes are deleted. The request was not applied."""

    advice = "Create the ephemeral nodes again in the new session"


class SessionMoved(ZooKeeperError, code=-118):
    """The session has moved to another server. The request was not applied."""

    retriable = True
    advice = "Retry"


class NoNode(ZooKeeperError, code=-101):
    """The znode or its parent does not exist."""

    advice = "Create its parents first, and check the chroot in `zookeeper_connect`"


class NoAuth(ZooKeeperError, code=-102):
    """The ACL of the znode forbids the request."""

    advice = "Set `zookeeper_auth` to a user with access, or change the ACL of the node"


class BadVersion(ZooKeeperError, code=-103):
    """Another client has changed the znode. The request was not applied."""

    advice = "Read the node again"


class NoChildrenForEphemerals(ZooKeeperError, code=-108):
    """The parent is an ephemeral znode, which cannot have children."""

    advice = "Create the node below a persistent node"


class NodeExists(ZooKeeperError, code=-110):
    """The znode already exists."""

    advice = "If it is the ephemeral node of another session, wait until it is deleted"


class NotEmpty(ZooKeeperError, code=-111):
    """The znode has children, so it was not deleted."""

    advice = "Delete its children first"


class InvalidAcl(ZooKeeperError, code=-114):
    """ZooKeeper rejects the ACL in the request."""

    advice = "An ACL for the creator needs `zookeeper_auth` or `zookeeper_sasl`"


class AuthFailed(ZooKeeperError, code=-115):
    """ZooKeeper rejected the credentials of this client."""

    advice = "Check `zookeeper_auth` and `zookeeper_sasl` against the configuration of the server"


class OperationTimeout(ZooKeeperError, code=-7):
    """The request timed out in ZooKeeper."""

    retriable = True
    advice = "Retry"


class BadArguments(ZooKeeperError, code=-8):
    """ZooKeeper rejects an argument of the request, usually the path."""

    advice = "A path must begin with / and have no empty, '.' or '..' parts"


class TransactionFailed(ZooKeeperError):
    """An operation of a transaction failed, so no operation was applied.

    ``index`` is the position of the operation in the transaction. Its error is the cause.
    """

    advice = "Read the nodes of its checks again"

    def __init__(self, path: str, index: int, reason: str) -> None:
        super().__init__(path, reason)
        self.args = (path, index, reason)  # for copies and pickles
        self.index = index

    def __str__(self) -> str:
        return f"transaction, operation {self.index} on {self.path}: {self.reason}. {self.advice}"


class ServerUnusable(ConsumerError):
    """A server of the ensemble rejected or lost the session. The next server is tried."""

    retriable = True

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(address, reason)
        self.address = str(address)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}"


class ZooKeeperUnavailable(ConsumerError):
    """No server granted a session in time. ``reasons`` has the last error of each server."""

    retriable = True

    def __init__(self, connect: str, seconds: float, reasons: tuple[str, ...]) -> None:
        super().__init__(connect, seconds, reasons)
        self.connect = connect
        self.seconds = seconds
        self.reasons = reasons

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons) or "no server has answered"
        return (
            f"no session with ZooKeeper at {self.connect} within {self.seconds:g} s: {reasons}. "
            "Check `zookeeper_connect` and that the ensemble has a quorum, or raise "
            "`zookeeper_connection_timeout_ms`"
        )


class BadZnode(ConsumerError):
    """The data of a znode is not valid, so the znode is ignored.

    ``path`` is the znode. ``reason`` says what is wrong.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}. The znode is ignored. Find the client that wrote it"
