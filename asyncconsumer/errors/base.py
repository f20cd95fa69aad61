"""The root of all errors, and the errors that any package may raise."""


class ConsumerError(Exception):
    """The base class of all errors. ``retriable`` says whether the operation may be repeated."""

    retriable: bool = False


class ConfigError(ConsumerError, ValueError):
    """An option or argument is not valid, or conflicts with another one."""


class ClosedError(ConsumerError):
    """The object was closed by the application, or is not open yet."""


class MalformedResponse(ConsumerError):
    """A broker's response does not follow the protocol. The connection must be closed."""

    retriable = True

    def __init__(self, api: str, version: int, position: int, reason: str) -> None:
        super().__init__(api, version, position, reason)
        self.api = api
        self.version = version
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"malformed {self.api} response (version {self.version}) at byte {self.position}: "
            f"{self.reason}. Close the connection, because the rest of its data is not reliable"
        )
