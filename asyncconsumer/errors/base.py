"""The root, and the errors that any part may raise."""


class ConsumerError(Exception):
    """Root. ``retriable`` is the only thing retry loops may look at."""

    retriable: bool = False


class ConfigError(ConsumerError, ValueError):
    """You must act: an option, or a pair of options, makes no sense."""


class ClosedError(ConsumerError):
    """You must act: *your* code already closed this object."""


class MalformedResponse(ConsumerError):
    """A broker's answer does not follow the protocol; close its connection and ask again."""

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
            f"{self.reason}. Close the connection: nothing behind this can be trusted."
        )
