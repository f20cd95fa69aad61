"""Where a feeder writes batches: landing folders, Delta tables, functions."""
