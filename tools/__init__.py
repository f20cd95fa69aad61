"""Programs for releases."""
