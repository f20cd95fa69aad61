"""The fetching of records from brokers."""
