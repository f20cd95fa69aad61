"""The command `asyncconsumer consume`."""
