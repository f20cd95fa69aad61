"""Checks of a client's access to a cluster: network, login, permissions, partitions and groups."""
