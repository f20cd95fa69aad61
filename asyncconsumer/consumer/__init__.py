"""The consumers: in groups, of manually assigned partitions, and without a group."""
