"""Handlers: what is done with records, how many at once, in which order, and what if it fails."""
