"""Error texts without record contents, for status pages and messages to a supervisor."""

from asyncconsumer.errors.base import ConsumerError


def brief(error: BaseException) -> str:
    """Return the text of a `ConsumerError`, or only the class name of another exception.

    The text of an exception of the application may contain record data, so it belongs in the log.
    """
    kind = type(error).__name__
    text = (str(error) or kind) if isinstance(error, ConsumerError) else kind
    cause = error.__cause__
    while cause is not None:
        if not isinstance(cause, ConsumerError):
            kind = type(cause).__name__
            text = text.replace(repr(cause), kind).replace(f"{kind}: {cause}", kind)
        cause = cause.__cause__
    return text
