"""Members of groups that Kafka coordinates by the classic protocol."""
