"""Membership in groups coordinated through ZooKeeper, compatible with the Scala consumer."""
