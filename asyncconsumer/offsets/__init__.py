"""The stores of committed offsets, and the committer."""
