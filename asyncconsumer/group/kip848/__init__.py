"""Members of groups that Kafka coordinates by the protocol of KIP-848."""
