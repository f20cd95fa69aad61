"""Members of groups that ZooKeeper coordinates, as the classic Scala consumer does."""
