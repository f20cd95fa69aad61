"""The command line options of `asyncconsumer bench`."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from asyncconsumer.cli.bench import runs
from asyncconsumer.cli.bench.report import BenchReport
from asyncconsumer.cli.connect import connection_options, producer_options, read_options
from asyncconsumer.cli.progress import ProgressDisplay, show_progress
from asyncconsumer.cli.shared_options import Bootstrap, Compression, Json, PropertiesFile, Property
from asyncconsumer.cli.signals import run_until_stopped

bench_app = typer.Typer(
    help="Measure the throughput and the latency of a cluster, as this client sees them.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
ReadAs = Annotated[
    runs.ReadAs, typer.Option("--as", help="The loop: over single records, or over many at once.")
]
Limit = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Stop after N records. Default: at the end.")
]
Seconds = Annotated[
    float | None, typer.Option(min=0.1, metavar="S", help="Stop after S seconds at the latest.")
]
Count = Annotated[int, typer.Option(min=1, metavar="N", help="Number of records to write.")]
Size = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Size of each value.")]
Rate = Annotated[
    float | None,
    typer.Option(min=0.1, metavar="N", help="Records per second. Default: as many as possible."),
]
SteadyRate = Annotated[float, typer.Option(min=0.1, metavar="N", help="Records per second.")]


@bench_app.command("consume")
def consume(
    topic: Topic,
    *,
    read_as: ReadAs = "records",
    count: Limit = None,
    seconds: Seconds = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Read a topic from its beginning to its end, without a group, and print the throughput.

    Options of the consumer, such as --property max.partition.fetch.bytes=4194304, apply.

    Example: asyncconsumer bench consume orders -b localhost:9092

    Example: asyncconsumer bench consume orders --as chunks --seconds 10 --json
    """
    options = read_options(bootstrap_servers, None, properties, property_)
    connection_options(options)  # raises without an address
    _run(
        lambda bar: runs.read_topic(topic, read_as, count, seconds, options, bar), "read", json=json
    )


@bench_app.command("produce")
def produce(
    topic: Topic,
    *,
    count: Count = 1_000_000,
    size: Size = 100,
    rate: Rate = None,
    compression: Compression = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Write generated records to a topic, and print the throughput and the latency of writes.

    A latency is the time until all in-sync replicas have a record. Without --rate it contains the
    wait in the producer's buffer.

    Example: asyncconsumer bench produce bench --count 1000000 --size 1000 -z lz4

    Example: asyncconsumer bench produce bench --count 10000 --rate 1000 --property linger.ms=5
    """
    common = read_options(bootstrap_servers, None, properties, property_)
    options = producer_options(common, compression)
    plan = runs.RecordPlan(count, size, rate)
    _run(lambda bar: runs.write_records(topic, plan, options, bar), "write", json=json)


@bench_app.command("latency")
def latency(
    topic: Topic,
    *,
    count: Count = 5_000,
    size: Size = 100,
    rate: SteadyRate = 1_000,
    compression: Compression = None,
    bootstrap_servers: Bootstrap = None,
    properties: PropertiesFile = None,
    property_: Property = None,
    json: Json = False,
) -> None:
    """Write records to a topic, read them at the same time, and print the latency.

    A latency is the time from the call of `send` until the loop of a consumer has the record.

    Example: asyncconsumer bench latency bench --rate 1000 -b localhost:9092
    """
    options = read_options(bootstrap_servers, None, properties, property_)
    writing = producer_options(options, compression)
    reading = connection_options(options)
    plan = runs.RecordPlan(count, size, rate)
    _run(lambda bar: runs.measure_latency(topic, plan, reading, writing, bar), "records", json=json)


def _run(
    measure: Callable[[ProgressDisplay], Awaitable[BenchReport]], title: str, *, json: bool
) -> None:
    async def main() -> None:
        with show_progress(title, enabled=sys.stderr.isatty()) as bar:
            report = await measure(bar)
        report.print(json=json)

    run_until_stopped(main)
