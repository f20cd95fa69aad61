"""The idempotent producer: batches, partitions and sequence numbers."""
