"""The decoding of record values, and the conversion of records to Arrow columns."""
