"""The read position in the record batches of a record set, in pure Python."""

import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from asyncconsumer.records import batch_v2, message_set
from asyncconsumer.records.aborted import Aborted
from asyncconsumer.records.body import Body, Keep, keep_all
from asyncconsumer.records.byte_reader import INT_32, MOST, DecodeError
from asyncconsumer.records.checksum import crc32c
from asyncconsumer.records.compression import LZ4_WITHOUT_HEADER_CHECK
from asyncconsumer.records.pauses import WORK_BETWEEN_PAUSES
from asyncconsumer.records.record import Record, fill

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_ENTRY_HEAD: Final = _OFFSET_AND_LENGTH.size  # the same in every format
_HEAD_TO_MAGIC: Final = 17
_LEAST_LENGTH: Final = 14  # length of an empty message of magic 0, the smallest entry
_LARGEST_MARKERS: Final = 64 * 1024  # bytes of a control batch; brokers write less than 100


class DecodeLimits(NamedTuple):
    """The limits that the caller of the decoder sets."""

    check_crc: bool
    max_decompressed_bytes: int
    max_batch: int
    end: int


class RecordSetCursor:
    """A read position in a record set.

    `records()` yields the records from this position on. A later call continues where it stopped.
    """

    def __init__(
        self, offset: int, limits: DecodeLimits, aborted: Aborted | None, keep: Keep = keep_all
    ) -> None:
        self.next_offset = offset
        self.incomplete = 0
        self.leader_epoch = -1
        self._may_pause = False  # whether to pause after much decompression
        self.stand = 0  # the first offset of the current entry, for errors
        self.body = Body(limits.max_decompressed_bytes, keep)  # the body of the current entry
        self._index = 0
        self._limits = limits
        self._aborted = aborted

    def records(self, view: memoryview, topic: str, partition: int) -> Iterator[Record | None]:
        """Yield every record from the read position on.

        Yield None in place of a record when a pause is due, if `allow_pauses` has enabled pauses.
        Raise `DecodeError` for corrupt data. Raise `TooLarge` before a body that takes long to
        decompress, if pauses for bodies are allowed.
        """
        new, body = Record.__new__, self.body
        while True:
            while self._may_pause and body.worked >= WORK_BETWEEN_PAUSES:
                yield None
            if (entry := self._next_entry(view)) is None:
                return
            body.begin(entry[0])
            time_type, entry_records = self._open(view, *entry)
            for offset, after, timestamp, key, value, headers, behind in entry_records:
                body.passed(behind)
                if offset >= self._limits.end:
                    return
                is_new = offset >= self.next_offset
                if after > self.next_offset:
                    self.next_offset = after
                if is_new:
                    yield fill(
                        new(Record),
                        topic,
                        partition,
                        offset,
                        timestamp,
                        time_type,
                        key,
                        value,
                        headers,
                    )
            if body.is_windowed:
                self.back()  # decompress again to read the rest of the body

    def allow_pauses(self, *, after_work: bool, for_bodies: bool) -> None:
        """Enable or disable pauses after much decompression, and before large bodies."""
        self._may_pause = after_work
        self.body.at_once = for_bodies

    def back(self) -> None:
        """Go back to the start of the current record batch, to decompress its body again.

        Later calls skip the records of the batch that were yielded already.
        """
        self._index = self.body.entry
        self.body.is_held = False

    def _open(
        self, view: memoryview, start: int, end: int
    ) -> tuple[int, Iterable[batch_v2.Fields]]:
        """Return the timestamp type and the records of an entry.

        An entry is a record batch, or a message of magic 0 or 1. A skipped entry has no records.
        """
        if view[start + 16] == 2:
            return self._open_batch(view, start, end)
        return self._open_messages(view, start, end)

    def _next_entry(self, view: memoryview) -> tuple[int, int] | None:
        """Return the start and end of the next complete entry, or None if there is none.

        An entry is a record batch, or a message of magic 0 or 1. Raise `DecodeError` for a bad
        header.
        """
        start, available = self._index, len(view) - self._index
        if available == 0 or self._is_beyond(view, available):
            return None
        if available < _ENTRY_HEAD:
            self._truncated(start, batch_v2.HEAD)
            return None
        self.stand, length = _OFFSET_AND_LENGTH.unpack_from(view, start)
        minimum, maximum = _LEAST_LENGTH, self._limits.max_batch
        if length < minimum:
            raise DecodeError(f"a batch length of {length}, less than the minimum of {minimum}")
        if length > maximum:
            raise DecodeError(f"a batch length of {length}, more than the maximum of {maximum}")
        if available < _HEAD_TO_MAGIC:
            self._truncated(start, _ENTRY_HEAD + length)
            return None
        end = start + _ENTRY_HEAD + length
        self._index = min(end, len(view))
        magic = (view[start + 16] ^ 0x80) - 0x80
        if not 0 <= magic <= 2:
            raise DecodeError(f"unknown magic {magic}", self._entry_after(view))
        if magic == 2 and length < batch_v2.HEAD - _ENTRY_HEAD:
            reason = f"a batch length of {length}, less than its header"
            raise DecodeError(reason, self._entry_after(view))
        if end > len(view):
            self._truncated(start, _ENTRY_HEAD + length)
            return None
        if self.stand < 0:
            raise DecodeError("a negative offset", self._entry_after(view))
        return start, end

    def _is_beyond(self, view: memoryview, available: int) -> bool:
        """Return whether the next record batch starts at or after the end offset."""
        if available < _HEAD_TO_MAGIC or view[self._index + 16] != 2:
            return False
        base, _ = _OFFSET_AND_LENGTH.unpack_from(view, self._index)
        return bool(base >= self._limits.end)

    def _truncated(self, start: int, needed: int) -> None:
        if start == 0:
            self.incomplete = needed

    def _entry_after(self, view: memoryview) -> int | None:
        """Return the first offset of the entry at the read position.

        Return None if the header of the entry is not valid. An entry is a record batch, or a
        message of magic 0 or 1. Reading continues at this entry after a corrupt one.
        """
        if len(view) - self._index < _HEAD_TO_MAGIC:
            return None
        offset, length = _OFFSET_AND_LENGTH.unpack_from(view, self._index)
        sane = _LEAST_LENGTH <= length <= self._limits.max_batch and view[self._index + 16] <= 2
        return offset if sane and offset > max(self.stand, -1) else None

    def _open_batch(
        self, view: memoryview, start: int, end: int
    ) -> tuple[int, Iterable[batch_v2.Fields]]:
        data = bytes(view[start:end])
        batch = batch_v2.read_header(data)
        if self._limits.check_crc and crc32c(memoryview(data)[21:]) != batch.crc:
            following = self._entry_after(view)
            raise DecodeError("its checksum does not match", following or batch.end)
        if not batch.is_possible:
            raise DecodeError("a last offset out of range", self._entry_after(view))
        self.leader_epoch = batch.leader_epoch
        if batch.records < 0:
            raise DecodeError("a negative record count", batch.last_offset + 1)
        unpack = partial(self.body.inflate, max_size=_LARGEST_MARKERS if batch.control else None)
        body = partial(batch_v2.read_body, batch, data[batch_v2.HEAD :], unpack)
        aborted = self._aborted is not None and self._aborted.covers(batch, body)
        unwanted = batch.last_offset < self.next_offset and self.body.count == 0
        if aborted or batch.control or unwanted or batch.records == 0:
            self.next_offset = max(self.next_offset, batch.last_offset + 1)
            return 0, ()
        part = self.body.part(body(), batch_v2.record_after)
        records = batch_v2.read_records(batch, part, self.body.behind, self.body.count)
        return int(batch.append_time), records

    def _open_messages(
        self, view: memoryview, start: int, end: int
    ) -> tuple[int, Iterable[batch_v2.Fields]]:
        data, offset = bytes(view[start:end]), self.stand
        if offset == MOST:
            raise DecodeError("an offset out of range")
        if (
            self._limits.check_crc
            and zlib.crc32(data[16:]) != INT_32.unpack_from(data, 12)[0] & 0xFFFFFFFF
        ):
            following = self._entry_after(view)
            raise DecodeError(
                "its checksum does not match", offset + 1 if following is None else following
            )
        try:
            message = message_set.read_message(data, 0, len(data))
        except DecodeError as damage:
            raise batch_v2.record_damage(damage, offset) from None
        if offset < self.next_offset and self.body.count == 0:
            return 0, ()
        magic = data[16]
        if message.attributes & 7:
            messages = self._open_wrapper(message, magic)
        else:
            messages = message_set.alone(message)
        time_type = int(message_set.is_append_time(message, magic)) if magic else -1
        return time_type, messages

    def _open_wrapper(
        self, wrapper: message_set.LegacyMessage, magic: int
    ) -> Iterator[batch_v2.Fields]:
        try:
            value, codec = message_set.check_wrapper(wrapper), wrapper.attributes & 7
            if codec == 3 and magic == 0:
                codec = LZ4_WITHOUT_HEADER_CHECK
            body = self.body.inflate(codec, value, wrapper.offset + 1)
            inner = message_set.survey(body, magic, wrapper.offset)
        except DecodeError as damage:
            raise DecodeError(damage.reason, wrapper.offset + 1) from None
        if inner.first >= 0:
            self.stand = inner.base_offset + inner.first
        part, start = self.body.part(body, message_set.message_after), self.body.behind
        return message_set.read_messages(part, start, inner.base_offset, wrapper, magic)
