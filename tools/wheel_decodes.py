"""Check that an installed package decodes records with the compiled decoder, without a broker.

Print the version and the folder of the package. This program uses internal names, and runs in
environments that have only the wheel and its dependencies.
"""

from pathlib import Path
from typing import get_args

import asyncconsumer
from asyncconsumer.config.choices import CompressionType
from asyncconsumer.records import decoding
from asyncconsumer.records.batch_encoder import BatchProducer, encode_batch

if decoding.name != "compiled":
    raise SystemExit(f"the {decoding.name} decoder is used instead of the compiled one")
for codec in get_args(CompressionType):
    encoder = decoding.RecordEncoder()
    for number in range(100):
        encoder.append(number, b"key", b"%d" % number, [("header", b"x")])
    batch = encode_batch(encoder, BatchProducer(7, 0, 0), compression=codec)
    values = [record.value for record in decoding.Records(batch, topic="t", partition=0)]
    assert values == [b"%d" % number for number in range(100)], codec
print(asyncconsumer.__version__, Path(asyncconsumer.__file__).parent)
