"""What it takes to be a member of a group that ZooKeeper coordinates, for whoever has streams."""
