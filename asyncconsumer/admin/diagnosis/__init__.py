"""Checks of the access to a cluster: network, login, permissions, partitions and groups."""
