"""Web apps and worker processes."""
