"""Offset stores, and the committer."""
