"""The options of the Spark data source."""
