"""The call of a function with parts of a record, in pure Python."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NoReturn, final

from asyncconsumer.records.record import Record

PartName = Literal["key", "value", "record"]
RaiseFailure = Callable[[BaseException, Record, Any], NoReturn]
"""A function that raises an error in place of that of a deserializer for a part of a record."""

_PARTS: Final = ("key", "value", "record")


@final
class PartReader:
    """A function that returns the key or the value of a record, or the record itself.

    With a `function`, it returns the result of that function for the part. A null stays None. If
    the function fails, `fail` is called with its error, the record and the name of the part.
    """

    __slots__ = ("_fail", "_function", "_part")

    def __init__(
        self,
        part: PartName,
        function: Callable[[Any], Any] | None = None,
        fail: RaiseFailure | None = None,
    ) -> None:
        if part not in _PARTS:
            raise ValueError(f"part must be 'key', 'value' or 'record', not {part!r}")
        self._part: PartName = part
        self._function = function
        self._fail = fail

    def __call__(self, record: Record, /) -> Any:  # noqa: ANN401 - any value
        """Return the part of a record that this reader is for."""
        data = record if self._part == "record" else getattr(record, self._part)
        if data is None or self._function is None:
            return data
        try:
            return self._function(data)
        except BaseException as error:
            if self._fail is not None:
                self._fail(error, record, self._part)
            raise


@final
class PartsCall:
    """A function of a record that passes the results of `readers` for the record to `function`."""

    __slots__ = ("_function", "_readers")

    def __init__(
        self, function: Callable[..., Any], readers: Sequence[Callable[[Record], Any]]
    ) -> None:
        self._function = function
        self._readers = tuple(readers)

    def __call__(self, record: Record, /) -> Any:  # noqa: ANN401 - what the function returns
        """Return the result of the function for the parts of a record."""
        return self._function(*[read(record) for read in self._readers])
