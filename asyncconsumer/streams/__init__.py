"""What a user iterates over."""
