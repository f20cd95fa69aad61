"""Decoding of records: fetch responses, record batches and message sets. No I/O."""
