"""The command `asyncconsumer groups`."""
