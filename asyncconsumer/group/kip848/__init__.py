"""Membership in groups that use the KIP-848 rebalance protocol."""
