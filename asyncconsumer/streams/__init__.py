"""The streams that users iterate over."""
