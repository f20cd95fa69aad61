"""Names of topics that brokers send: those that Kafka does not allow are ignored."""

import itertools

import pytest

from asyncconsumer.errors import InvalidTopic
from asyncconsumer.net import topic_validation
from asyncconsumer.net.metadata_reader import MetadataReader
from asyncconsumer.types import TopicPartition
from tests.support.fake_connections import metadata_answer

pytestmark = pytest.mark.fast

ILLEGAL = ["../../x", "..", ".", "a/b", "a b", "a\n", "a:b", "ü", "\0", "t" * 250, "started at {}"]


def read(*names: str, code: int = 0) -> MetadataReader:
    """Return a reader of a response with these topics, all of which were requested."""
    body = metadata_answer({1: ("a", 1)}, {name: (None, code, {}) for name in names})
    reader = MetadataReader(body[1:], 12, names)
    for _ in reader.steps():
        pass
    return reader


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_topic_name_is_ignored(name: str) -> None:
    reader = read("t", name)
    assert list(reader.metadata.topics) == list(reader.names) == ["t"]
    with pytest.raises(InvalidTopic):  # the response to a request for that name
        read(name, code=InvalidTopic.code).metadata.leader(TopicPartition(name, 0))


@pytest.mark.parametrize(
    "name", ["t", "T-1_x.y", "t" * 249, "...", ".hidden", "__consumer_offsets"]
)
def test_a_legal_topic_name_is_kept(name: str) -> None:
    assert list(read(name).metadata.topics) == [name]


def test_the_log_lines_of_illegal_names_are_limited(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_validation, "_ignored", itertools.count(1))
    for _ in range(10):
        read(*(f"../{number}" for number in range(1000)))
    assert "'../0' of a broker, which Kafka does not allow" in caplog.messages[0]
    assert 1 <= len(caplog.messages) < 20
