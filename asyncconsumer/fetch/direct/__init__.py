"""The fetching of one partition without a group."""
