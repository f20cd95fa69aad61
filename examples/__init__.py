"""Services as small as they can be, each run by the tests against real brokers."""
