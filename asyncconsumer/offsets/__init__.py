"""Where a group's offsets are kept."""
