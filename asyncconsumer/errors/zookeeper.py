"""What ZooKeeper says, and what can happen on the way to it."""

from __future__ import annotations

from typing import ClassVar

from asyncconsumer.errors.base import ConsumerError


class ZooKeeperError(ConsumerError):
    """A call to ZooKeeper failed. ``path`` is the znode it was about, ``reason`` says more."""

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
    def of(cls, code: int, path: str) -> ZooKeeperError:
        """The error for a code; one that this client does not know keeps its number."""
        if known := cls.by_code.get(code):
            return known(path)
        error = ZooKeeperError(path, "ZooKeeper refused it")
        error.code = code
        return error


class ConnectionLoss(ZooKeeperError, code=-4):
    """The connection ended before the answer came.

    ``maybe_applied`` tells whether a write may have taken effect: it is False if nothing was sent.
    """

    retriable = True
    advice = "Read what is there before you write again"

    def __init__(self, path: str, reason: str = "", *, maybe_applied: bool = True) -> None:
        super().__init__(path, reason)
        self.maybe_applied = maybe_applied

    def __str__(self) -> str:
        told = f"{self.path}: {self.reason or 'the connection ended before the answer came'}. "
        return told + (self.advice if self.maybe_applied else "Nothing was sent: try again")


class SessionExpired(ZooKeeperError, code=-112):
    """The session is over, and its ephemeral nodes with it: nothing was done."""

    advice = "Claim again, in the new session, what this one held"


class SessionMoved(ZooKeeperError, code=-118):
    """The session went on through another server; this one did nothing."""

    retriable = True
    advice = "Ask again"


class NoNode(ZooKeeperError, code=-101):
    """There is no such node, or its parent is missing."""

    advice = "Create its parents first; check the chroot in zookeeper_connect"


class NoAuth(ZooKeeperError, code=-102):
    """The access list of the node forbids it."""

    advice = "Set auth to a user that may, or have the node's access list changed"


class BadVersion(ZooKeeperError, code=-103):
    """The node was changed by another meanwhile; nothing was done."""

    advice = "Read it again"


class NoChildrenForEphemerals(ZooKeeperError, code=-108):
    """Its parent is ephemeral, and such nodes have no children."""

    advice = "Put it elsewhere"


class NodeExists(ZooKeeperError, code=-110):
    """The node is there already."""

    advice = "If it is another's ephemeral node, wait until that is gone"


class NotEmpty(ZooKeeperError, code=-111):
    """The node has children, and was not deleted."""

    advice = "Delete its children first"


class InvalidAcl(ZooKeeperError, code=-114):
    """ZooKeeper does not take this access list."""

    advice = "creator_all needs auth"


class AuthFailed(ZooKeeperError, code=-115):
    """ZooKeeper refused to authenticate us."""

    advice = "Check auth and sasl against what the server is set up for"


class OperationTimeout(ZooKeeperError, code=-7):
    """ZooKeeper gave up on it in the time it allows itself."""

    retriable = True
    advice = "Ask again"


class BadArguments(ZooKeeperError, code=-8):
    """ZooKeeper takes the request for nonsense: most often the path."""

    advice = "A path begins with / and has no empty, '.' or '..' parts"


class TransactionFailed(ZooKeeperError):
    """One operation of a transaction failed, and so none was done.

    ``index`` says which one; its own error is the cause of this one.
    """

    advice = "Read again what its checks were about"

    def __init__(self, path: str, index: int, reason: str) -> None:
        super().__init__(path, reason)
        self.args = (path, index, reason)  # what a copy is made from
        self.index = index

    def __str__(self) -> str:
        return f"transaction, operation {self.index} on {self.path}: {self.reason}. {self.advice}"


class ServerUnusable(ConsumerError):
    """One server of the ensemble gave us no session, or broke off; the next one is tried."""

    retriable = True

    def __init__(self, address: object, reason: str) -> None:
        super().__init__(address, reason)
        self.address = str(address)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}"


class ZooKeeperUnavailable(ConsumerError):
    """No server gave us a session in time. ``reasons`` has the last word of each."""

    retriable = True

    def __init__(self, connect: str, seconds: float, reasons: tuple[str, ...]) -> None:
        super().__init__(connect, seconds, reasons)
        self.connect = connect
        self.seconds = seconds
        self.reasons = reasons

    def __str__(self) -> str:
        told = "; ".join(self.reasons) or "none has answered yet"
        return (
            f"no session with ZooKeeper at {self.connect} within {self.seconds:g} s: {told}. Check "
            "zookeeper_connect and that the ensemble has a quorum, or allow more with "
            "connection_timeout_ms"
        )


class BadZnode(ConsumerError):
    """A znode holds something that nobody should have put there. It was left out.

    ``path`` says where, ``reason`` what is wrong.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}. It is left out; see who writes there"
