import sys
from types import FrameType, ModuleType

import pytest

from asyncconsumer.records import _pure, decoding
from asyncconsumer.records.decoding import PureDecoderWarning
from tests.records.test_record_set import read
from tests.support.record_encoder import batch, rows

pytestmark = pytest.mark.fast


def test_every_decoder_has_the_names_of_the_reference(decoder: ModuleType) -> None:
    for name in _pure.__all__:
        assert hasattr(decoder, name)
        assert getattr(decoding, name) is getattr(decoding.decoder, name)


def test_both_decoders_are_available_in_tests() -> None:
    assert decoding.available() == ["compiled", "pure"]


def test_a_decoder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ImportError, match="no such decoder"):
        decoding.load("quantum")


def test_a_missing_compiled_decoder_causes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncconsumer.records._records", None)
    with pytest.warns(PureDecoderWarning, match="many times slower"):
        name, module = decoding.load(None)
    assert (name, module) == ("pure", _pure)
    with pytest.raises(ImportError):
        decoding.load("compiled")


def test_records_are_refused_while_another_thread_decompresses() -> None:
    """The profile function runs during `inflate`, like other threads."""
    _, compiled = decoding.load("compiled")
    records = read(compiled, batch(rows(3), codec=4))
    refused = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "inflate":
            for use in (lambda: next(records), records.close, records.skip_corrupt, take):
                with pytest.raises(RuntimeError, match="another thread"):
                    use()
                refused.append(use)

    def take() -> object:
        return records.take_columns(63, 1, 1, 1)

    sys.setprofile(watch)
    try:
        offsets = [record.offset for record in records]
    finally:
        sys.setprofile(None)
    assert len(refused) == 4
    assert offsets == [0, 1, 2]
