"""The options of consumers as typed keyword arguments, each with its documentation.

The docstring below each name is its only description. `option_docs` reads it at run time, and
editors and documentation tools read it from this file. Defaults are those of the config classes.
"""

import ssl
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from asyncconsumer.config.choices import (
    AssignmentStrategies,
    AutoOffsetReset,
    ClassicOffsetReset,
    CommitPolicy,
    CompressionType,
    GroupProtocol,
    IsolationLevel,
    OffsetsStorage,
    PoisonAction,
    SaslMechanism,
    SecurityProtocol,
    ZooKeeperAssignorName,
)
from asyncconsumer.config.tokens import TokenSource
from asyncconsumer.types import TopicPartition


class SecurityOptions(TypedDict, total=False):
    """Options of encryption and authentication."""

    security_protocol: SecurityProtocol
    """Protocol of the broker's listener: with or without TLS (SSL), with or without SASL.

    With TLS, the certificate and the host name of each broker are verified. The lowest version is
    TLS 1.2.
    """
    allowed_hosts: str | Sequence[str] | None
    """The only hosts that this client connects to: names, "*.example.com", addresses, networks.

    Brokers report the addresses of other brokers, which this option restricts. It is a string with
    commas or a sequence. Names are not resolved. None allows all hosts.
    """
    ssl_context: ssl.SSLContext | None
    """TLS settings as an object, for settings that the other ``ssl_*`` options do not have."""
    ssl_cafile: str | None
    """Certificates of trusted authorities: a path, or a PEM string. None trusts the system's."""
    ssl_certfile: str | None
    """Certificate of this client, which may include its key: a path, or a PEM string."""
    ssl_keyfile: str | None
    """Private key of this client: a path, or a PEM string. None takes it from ``ssl_certfile``."""
    ssl_password: str | None
    """Password of the private key."""
    sasl_mechanism: SaslMechanism | None
    """SASL mechanism. Required for SASL_PLAINTEXT and SASL_SSL."""
    sasl_plain_username: str | None
    """User name for PLAIN and SCRAM."""
    sasl_plain_password: str | None
    """Password for PLAIN and SCRAM."""
    sasl_oauth_token_provider: TokenSource | None
    """Token provider for OAUTHBEARER: a sync or async function that returns a token.

    A token provider of aiokafka is accepted as well: `Oidc`, `MskIam`, `AzureEntra` or your own.
    In files and environment variables it is "module:name", such as "asyncconsumer:MskIam".
    """
    sasl_oauthbearer_token_endpoint_url: str | None
    """URL of an OIDC token endpoint for OAUTHBEARER, by the client credentials grant.

    `Oidc` requests the tokens. ``sasl_oauth_token_provider`` is then not needed.
    """
    sasl_oauthbearer_client_credentials_client_id: str | None
    """Client id for the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """Client secret for the token endpoint."""
    sasl_oauthbearer_scope: str | None
    """Scope to request from the token endpoint, or the scope of `AzureEntra`."""
    sasl_oauthbearer_extensions: str | None
    """SASL extensions for the broker, "name=value,name=value"."""
    sasl_kerberos_service_name: str
    """Kerberos service name of the brokers, for GSSAPI."""
    sasl_kerberos_domain_name: str | None
    """Kerberos host name of the brokers, for GSSAPI. None takes the host of each broker."""


class ClientOptions(SecurityOptions, total=False):
    """Options of connections, except the addresses."""

    client_id: str
    """Name of this client in the logs and quotas of brokers."""
    connect_timeout_ms: int
    """Longest time to open a connection, which covers TCP, TLS and login together."""
    request_timeout_ms: int
    """Longest time to wait for a response before the connection is closed."""
    connections_max_idle_ms: int
    """Time after which an unused connection is closed."""
    reconnect_backoff_ms: int
    """First wait after a failed connection attempt. The wait grows with each failure."""
    reconnect_backoff_max_ms: int
    """Longest wait after a failed connection attempt."""
    max_frame_bytes: int
    """Largest response that is accepted. A larger one is not read, and raises FrameTooLarge."""


class ConnectionOptions(ClientOptions, total=False):
    """Options of connections to a cluster."""

    bootstrap_servers: str | Sequence[str]
    """Brokers to discover the cluster from: "host:port,host:port" or a sequence.

    The default port is 9092. An IPv6 address needs brackets. Required, except with
    ``group_protocol="zookeeper"``.
    """


class FetchOptions(TypedDict, total=False):
    """Options of fetch requests."""

    fetch_min_bytes: int
    """Amount of data for which a broker waits before it answers, up to ``fetch_max_wait_ms``."""
    fetch_max_bytes: int
    """Largest amount of data in one fetch response."""
    fetch_max_wait_ms: int
    """Longest time that a broker waits for ``fetch_min_bytes``."""
    max_partition_fetch_bytes: int
    """Largest amount of data of one partition in a response. A larger batch is fetched whole."""
    isolation_level: IsolationLevel
    """Whether to skip records of open and aborted transactions ("read_committed")."""
    check_crcs: bool
    """Whether the checksums of batches are verified."""
    max_decompressed_bytes: int
    """Largest decompressed size of a batch. A larger batch is treated as corrupt."""
    client_rack: str
    """Rack of this client, so that brokers can name a replica in the same rack."""


class EngineOptions(TypedDict, total=False):
    """Options of the fetch engine."""

    max_buffered_bytes: int
    """Limit for fetched data that is not consumed yet, for all streams together."""
    num_consumer_fetchers: int
    """Number of fetch connections to each broker."""
    refresh_leader_backoff_ms: int
    """Wait before the leader of a partition is looked up again."""
    auto_offset_reset: AutoOffsetReset
    """Where to start without a committed offset, or if it is out of range. "none" raises."""
    stall_timeout_ms: int
    """Time without progress after which a partition with records is reported as stalled."""
    retry_timeout_ms: int | None
    """Time after which a lasting error is raised. None retries without limit."""
    metadata_refresh_ms: int
    """Interval at which new topics and partitions are discovered."""


class GroupOptions(TypedDict, total=False):
    """Options of group membership and commits."""

    group_id: str | None
    """Name of the consumer group. Required for subscriptions and commits."""
    group_instance_id: str | None
    """Name of a static member, which keeps its assignment across a restart."""
    group_protocol: GroupProtocol
    """Group protocol: Kafka's classic one, the one of KIP-848 ("consumer"), or ZooKeeper's."""
    group_remote_assignor: str | None
    """Assignor of the coordinator for ``group_protocol="consumer"``. None takes its default."""
    partition_assignment_strategy: AssignmentStrategies
    """Assignors in order of preference, each by name, class or instance."""
    session_timeout_ms: int
    """Time without a heartbeat after which the coordinator removes a member."""
    heartbeat_interval_ms: int
    """Interval of heartbeats. A member learns of a rebalance from their responses."""
    rebalance_timeout_ms: int
    """Time that the members of a group have to join a rebalance."""
    exclude_internal_topics: bool
    """Whether a pattern leaves out Kafka's internal topics."""
    auto_commit_interval_ms: int
    """Interval at which acknowledged records are committed."""
    commit_timeout_ms: int
    """Time for retries when offsets are committed or loaded."""
    revoke_grace_ms: int
    """Longest time that a record in flight delays the revocation of its partition.

    The default is 10 s, or ``rebalance_timeout_ms`` if that is less.
    """
    listener_timeout_ms: int
    """Longest time that a rebalance listener delays a rebalance."""
    max_poll_interval_ms: int | None
    """Time without a request for the next record after which a member leaves. None is off."""
    allow_auto_create_topics: bool
    """Whether brokers may create subscribed topics that do not exist."""
    heartbeat_thread: bool
    """Whether a thread sends heartbeats while the event loop is blocked."""
    max_loop_blocked_ms: int
    """Longest time that the heartbeat thread keeps the session of a blocked event loop."""


class MemberOptions(GroupOptions, total=False):
    """Options of group membership that apply to loops and not to apps."""

    enable_auto_commit: bool
    """Whether acknowledged records are committed automatically."""
    consumer_timeout_ms: int | None
    """Time without a record after which `ConsumerTimeout` is raised. None waits without limit."""


class DeliveryOptions(TypedDict, total=False):
    """Options of delivery: commits, unreadable records and the end of a loop."""

    commit_policy: CommitPolicy
    """When records are committed.

    "auto" commits a record after the next one is requested. "manual" commits only in `commit`.
    "at_most_once" commits records before they are delivered, so that none is redelivered. A crash
    may then lose records that were fetched together.
    """
    on_poison: PoisonAction
    """Action for a record that cannot be deserialized, and for a corrupt batch.

    "dead_letter" writes the record to ``dead_letter_topic``.
    """
    dead_letter_topic: str | None
    """Topic for ``on_poison="dead_letter"``."""
    max_records: int | None
    """Number of records after which the loop ends. None has no limit."""
    idle_timeout_ms: int | None
    """Time without a record after which the loop ends. None waits without limit."""
    stop_at: Literal["end"] | Mapping[TopicPartition, int] | None
    """Where the loop ends: an offset for each partition, or "end" for the current log ends."""
    progress: bool
    """Whether to show a progress bar on the terminal."""
    tracing: bool
    """Whether OpenTelemetry spans are recorded for the items of a loop and for commits."""


class ZooKeeperOptions(TypedDict, total=False):
    """Options of a group that ZooKeeper coordinates (``group_protocol="zookeeper"``)."""

    zookeeper_connect: str
    """ZooKeeper servers and chroot: "host:port,host:port/chroot". The default port is 2181."""
    zookeeper_session_timeout_ms: int
    """Time without a ping after which ZooKeeper expires the session of a member."""
    zookeeper_connection_timeout_ms: int
    """Longest wait for a connection. The default is ``zookeeper_session_timeout_ms``."""
    zookeeper_sync_time_ms: int
    """Time that a ZooKeeper follower may lag. The default for ``rebalance_backoff_ms``."""
    zookeeper_auth: str | None
    """Credentials for the digest scheme, as "user:password"."""
    zookeeper_sasl: str | None
    """Credentials for SASL (DIGEST-MD5), as "user:password"."""
    zookeeper_set_acl: bool
    """Whether only the authenticated user has access to nodes that this client creates."""
    zookeeper_ssl_context: ssl.SSLContext | None
    """TLS settings for ZooKeeper. None connects without TLS."""
    rebalance_max_retries: int
    """Number of attempts to claim partitions before the failure is reported."""
    rebalance_backoff_ms: int
    """Wait between attempts to claim partitions. The default is ``zookeeper_sync_time_ms``."""
    offsets_storage: OffsetsStorage
    """Where offsets are committed."""
    dual_commit_enabled: bool
    """Whether offsets are also committed to ZooKeeper. True by default with Kafka storage."""
    consumer_id: str | None
    """Name of the member. None generates one."""


class AppOptions(
    ConnectionOptions, FetchOptions, EngineOptions, GroupOptions, ZooKeeperOptions, total=False
):
    """Options of a `ConsumerApp`."""


class ConsumerOptions(AppOptions, MemberOptions, DeliveryOptions, total=False):
    """Options of a `Consumer`."""


class SendOptions(TypedDict, total=False):
    """Options of the way in which a producer writes records."""

    compression_type: CompressionType
    """Codec of the batches."""
    linger_ms: int
    """Longest time that a batch waits for more records while it is not full."""
    max_batch_bytes: int
    """Size at which a batch is full, before compression. A larger record is a batch of its own."""
    max_buffered_bytes: int
    """Limit for records that are not written yet. At the limit, `send` waits."""
    delivery_timeout_ms: int
    """Longest time from `send` until a record is written, or has failed."""
    close_timeout_ms: int
    """Longest time that the end of the block waits for records that are not written yet."""
    transactional_id: str | None
    """Name that makes the producer transactional. No other running producer may have it."""
    transaction_timeout_ms: int
    """Time after which the brokers abort a transaction that was not ended."""


class ProducerOptions(ConnectionOptions, SendOptions, total=False):
    """Options of a `Producer`."""


class AdminOptions(ClientOptions, total=False):
    """Options of an `Admin`."""


class ReaderOptions(ClientOptions, FetchOptions, total=False):
    """Options of a `SimpleConsumer` and of a `RangeReader`."""


class ClassicOptions(SecurityOptions, ZooKeeperOptions, total=False):
    """Options of a `ConsumerConnector`, with the names of Kafka's classic consumer."""

    group_id: str
    """Name of the consumer group. Required."""
    client_id: str
    """Name of this client in the logs and quotas of brokers. The default is ``group_id``."""
    bootstrap_servers: str | Sequence[str]
    """Brokers to discover the cluster from. Empty takes the brokers that ZooKeeper lists."""
    socket_timeout_ms: int
    """Longest time to wait for a response before the connection is closed."""
    socket_receive_buffer_bytes: int
    """Not used, because the operating system sizes the buffer."""
    fetch_message_max_bytes: int
    """Largest amount of data of one partition in a response. A larger batch is fetched whole."""
    fetch_min_bytes: int
    """Amount of data for which a broker waits before it answers, up to ``fetch_wait_max_ms``."""
    fetch_max_bytes: int
    """Largest amount of data in one fetch response. The classic consumer ignores it."""
    fetch_wait_max_ms: int
    """Longest time that a broker waits for ``fetch_min_bytes``."""
    num_consumer_fetchers: int
    """Number of fetch connections to each broker."""
    refresh_leader_backoff_ms: int
    """Wait before the leader of a partition is looked up again."""
    queued_max_message_chunks: int
    """Not used, because ``max_buffered_bytes`` limits the number of chunks."""
    max_buffered_bytes: int
    """Limit for fetched data that is not consumed yet, for all streams together."""
    isolation_level: IsolationLevel
    """Whether to skip records of open and aborted transactions ("read_committed")."""
    check_crcs: bool
    """Whether the checksums of batches are verified."""
    client_rack: str
    """Rack of this client, so that brokers can name a replica in the same rack."""
    stall_timeout_ms: int
    """Time without progress after which a partition with records is reported as stalled."""
    auto_offset_reset: ClassicOffsetReset
    """Where to start without a committed offset, or if it is out of range."""
    consumer_timeout_ms: int
    """Time without a record after which `ConsumerTimeout` is raised. -1 waits without limit."""
    exclude_internal_topics: bool
    """Whether a filter leaves out Kafka's internal topics."""
    partition_assignment_strategy: ZooKeeperAssignorName
    """Assignor, which all members of the group must have in common."""
    auto_commit_enable: bool
    """Whether acknowledged records are committed automatically."""
    auto_commit_interval_ms: int
    """Interval at which acknowledged records are committed."""
    offsets_channel_backoff_ms: int
    """Wait between attempts to commit or load offsets in Kafka."""
    offsets_channel_socket_timeout_ms: int
    """Not used, because ``socket_timeout_ms`` applies to all brokers."""
    offsets_commit_max_retries: int
    """Number of retries of a commit to Kafka."""
