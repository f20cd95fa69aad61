"""Options of the Spark data source."""
