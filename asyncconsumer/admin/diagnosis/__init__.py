"""Checks of a client's way to a cluster: network, login, permissions, partitions and groups."""
