"""Membership in groups that use the classic rebalance protocol."""
