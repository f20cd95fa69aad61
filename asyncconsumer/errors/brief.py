"""Short error texts without record contents, for status pages and for messages to a supervisor."""

from asyncconsumer.errors.base import ConsumerError


def brief(error: BaseException) -> str:
    """Return the text of a `ConsumerError`. For any other exception return only its class name.

    The text of an application's exception may contain record data, so it belongs in the log.
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
