"""Consumers: in groups, of assigned partitions, and without a group."""
