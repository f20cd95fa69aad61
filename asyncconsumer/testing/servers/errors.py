"""What can go wrong before a server runs. Each message is one sentence that says what to do."""

from asyncconsumer.errors import ConsumerError


class ServerError(ConsumerError):
    """A server could not be had, started or steered."""


class JavaMissing(ServerError):
    """No Java that can run the server was found."""


class UnknownVersion(ServerError):
    """There is no such version of the server, or none that runs here."""


class FetchFailed(ServerError):
    """The server's jars could not be downloaded."""


class DamagedCache(ServerError):
    """A jar in the cache is not the one that was downloaded."""


class CompileFailed(ServerError):
    """The compiler refused a Java program; carries what it said."""


class PortInUse(ServerError):
    """Something else listens on a port that was asked for by number."""


class StartFailed(ServerError):
    """The server's process ended, or did not get ready in time; carries the end of its log."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(f"{message}\n{log_tail}" if log_tail else message)
        self.summary = message
        self.log_tail = log_tail


class AdminFailed(ServerError):
    """A server refused an administrative request."""
