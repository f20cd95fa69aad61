"""The installation of this package on the executors of a Spark cluster."""
