"""The admin client: topics, groups, offsets, lag, leaders and ACLs."""
