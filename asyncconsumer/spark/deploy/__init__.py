"""The deployment of the package to the executors of a Spark cluster."""
