"""What travels from fetchers to streams, and the channel in which it waits."""
