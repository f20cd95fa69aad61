"""The command `asyncconsumer groups`, which shows and resets consumer groups in ZooKeeper."""
