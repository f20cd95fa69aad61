"""Consumer groups: memberships, subscriptions and assignors."""
