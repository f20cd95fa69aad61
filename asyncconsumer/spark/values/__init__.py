"""Keys and values of records as typed columns."""
