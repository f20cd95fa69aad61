"""The Kafka sink of Spark queries."""
