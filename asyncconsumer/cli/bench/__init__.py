"""The commands of `asyncconsumer bench`, which measure throughput and latency of a cluster."""
