"""Fetching one partition without a group."""
