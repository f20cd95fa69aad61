"""The decoding of records: fetch responses, record batches and message sets. No I/O."""
