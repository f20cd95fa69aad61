"""Consumers with the interfaces of other client libraries."""
