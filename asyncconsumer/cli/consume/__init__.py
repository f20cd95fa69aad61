"""The command `asyncconsumer consume`, which prints the records of topics."""
