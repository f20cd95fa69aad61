"""The admin operations that the checks of `diagnose` use, and the client for other requests."""

from asyncconsumer.admin.client import AdminClient
from asyncconsumer.admin.groups import GroupOperations
from asyncconsumer.admin.topics import TopicOperations


class ClusterView(TopicOperations, GroupOperations):
    """The operations of `Admin`, which use a client that is open already."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    @property
    def client(self) -> AdminClient:
        """Return the client for requests that `Admin` does not have."""
        return self._client
