"""Who reads what: consumer groups."""
