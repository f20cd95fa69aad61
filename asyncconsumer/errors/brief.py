"""What may be shown of an error where anybody may look: on pages, in a supervisor's messages."""

from asyncconsumer.errors.base import ConsumerError


def brief(error: BaseException) -> str:
    """Our own words about an error; of an exception that is not ours only its kind.

    The text of the application's exceptions may hold what is in records. It belongs into the log.
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
