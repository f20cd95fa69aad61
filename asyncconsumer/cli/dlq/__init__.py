"""The commands of `asyncconsumer dlq`, which list, replay and drop dead letters."""
