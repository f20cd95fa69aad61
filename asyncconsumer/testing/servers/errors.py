"""The errors of test servers. Each message says what to do."""

from asyncconsumer.errors import ConsumerError


class ServerError(ConsumerError):
    """A test server failed to download, start or respond."""


class JavaMissing(ServerError):
    """The machine has no Java that can run the server."""


class UnknownVersion(ServerError):
    """The version of the server does not exist or is not supported."""


class FetchFailed(ServerError):
    """The server's jars could not be downloaded."""


class DamagedCache(ServerError):
    """A jar in the cache differs from the one that was downloaded."""


class CompileFailed(ServerError):
    """The compiler rejected a Java program. The message has its output."""


class PortInUse(ServerError):
    """Another process listens on a requested port."""


class StartFailed(ServerError):
    """The server process ended or was not ready in time. The error has the end of its log."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(f"{message}\n{log_tail}" if log_tail else message)
        self.summary = message
        self.log_tail = log_tail


class AdminFailed(ServerError):
    """A server refused an administrative request."""
