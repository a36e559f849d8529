"""KubeSchedulerConfiguration, kubescheduler.config.k8s.io/v1: every field of kube-scheduler 1.36.

The defaults here apply to absent fields. `defaults` has the defaults of a profile's absent parts.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/config/v1/types.go; the defaults:
    pkg/scheduler/apis/config/v1/defaults.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from scheduler.framework.interface import ExtensionPoint

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1

Percentage = Annotated[int, msgspec.Meta(ge=0, le=100)]


class ConfigurationStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base class of all parts of a configuration: immutable, camelCase in the file.

    The reference shows the version that has a field first. It is 0.2.0, unless the metadata of the field name another one:
    `Annotated[bool, msgspec.Meta(extra={"since": "0.3.0"})]`.
    """


class LeaderElection(ConfigurationStruct, frozen=True, kw_only=True):
    """Leader election among several schedulers.

    Source:
        staging/src/k8s.io/component-base/config/v1alpha1/types.go, LeaderElectionConfiguration.
    """

    leader_elect: bool = True
    lease_duration: Duration = Duration(15_000_000_000)
    """Time after the last observed renewal before another candidate takes over."""
    renew_deadline: Duration = Duration(10_000_000_000)
    """Time for which the leader tries to renew before it stops."""
    retry_period: Duration = Duration(2_000_000_000)
    resource_lock: str = "leases"
    resource_name: str = "custom-scheduler"
    """The Lease's name; kube-scheduler's own default is `kube-scheduler`."""
    resource_namespace: str = "kube-system"


class Sharding(ConfigurationStruct, frozen=True, kw_only=True):
    """Several replicas that place pods at the same time. kube-scheduler does not have this."""

    enabled: bool = False
    """Whether all replicas place pods, each on its own nodes; otherwise one does, and the others stand by."""


class ClientConnection(ConfigurationStruct, frozen=True, kw_only=True):
    """The connection to the API server.

    Source:
        staging/src/k8s.io/component-base/config/v1alpha1/types.go, ClientConnectionConfiguration.
    """

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 0.0
    """Requests per second. 0, the default, sets no limit: concurrency follows latency and 429 answers;
    kube-scheduler would use 50. As in client-go, a negative number sets no limit either."""
    burst: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT32)] = 0
    """Requests sent at once above `qps`; 0 for as many as in a second. Without a `qps` it has no effect."""


class Plugin(ConfigurationStruct, frozen=True, kw_only=True):
    """One plugin in a list.

    Attributes:
        name: kube-scheduler's name, the name of an entry point, `module:Class`, or the path of a .py file
            relative to the configuration's folder.
        weight: weight of its scores; 0 stands for 1.
    """

    name: str = ""
    weight: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT32)] = 0


class PluginSet(ConfigurationStruct, frozen=True, kw_only=True):
    """A profile's changes at one extension point: `disabled` removes defaults, `enabled` adds plugins."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


class Plugins(ConfigurationStruct, frozen=True, kw_only=True):
    """The plugin sets of a profile; `multi_point` applies to every point that its plugins implement."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def at(self, point: ExtensionPoint) -> PluginSet:
        """Return the plugin set of one extension point, without the plugins of `multi_point`."""
        found: PluginSet = getattr(self, point.name.lower())
        return found


class PluginConfig(ConfigurationStruct, frozen=True, kw_only=True):
    """The arguments of one plugin, as plain values; the plugin defines their type."""

    name: str = ""
    args: dict[str, Any] = {}


class Profile(ConfigurationStruct, frozen=True, kw_only=True):
    """The scheduling of pods with one `spec.schedulerName`.

    Attributes:
        percentage_of_nodes_to_score: None for the configuration's value.
    """

    scheduler_name: str = ""
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ExtenderTLS(ConfigurationStruct, frozen=True, kw_only=True):
    """ExtenderTLSConfig: data take precedence over files, and are base64 in the file."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = msgspec.field(name="caFile", default="")
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = msgspec.field(name="caData", default=b"")


class ManagedResource(ConfigurationStruct, frozen=True, kw_only=True):
    """ExtenderManagedResource: an extended resource; only pods that request one are sent to the extender."""

    name: str = ""
    ignored_by_scheduler: bool = False


class Extender(ConfigurationStruct, frozen=True, kw_only=True):
    """An HTTP service called in every scheduling cycle. An empty verb is not called.

    Source:
        staging/src/k8s.io/kube-scheduler/config/v1/types.go, Extender; the timeout of 5 seconds:
        pkg/scheduler/extender.go, DefaultExtenderTimeout.
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Annotated[int, msgspec.Meta(ge=-_MAX_INT64 - 1, le=_MAX_INT64)] = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(name="enableHTTPS", default=False)
    tls_config: ExtenderTLS | None = None
    http_timeout: Duration = Duration(5_000_000_000)
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class KubeSchedulerConfiguration(ConfigurationStruct, frozen=True, kw_only=True):
    """All settings; `load` fills in every default."""

    parallelism: Annotated[int, msgspec.Meta(ge=1, le=_MAX_INT32)] = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    """None for the value of `enable_profiling`."""
    percentage_of_nodes_to_score: Percentage = 100
    """The percentage of the nodes that is searched for a feasible one. 100, the default, evaluates every node;
    0 is kube-scheduler's own default, a percentage that shrinks from 50 to 5 as the cluster grows."""
    pod_initial_backoff_seconds: Annotated[int, msgspec.Meta(gt=0, le=_MAX_INT64)] = 1
    pod_max_backoff_seconds: Annotated[int, msgspec.Meta(le=_MAX_INT64)] = 10
    node_pause_initial_seconds: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64)] = 5
    """How long a node is paused after its kubelet rejected a pod; doubles with each rejection. 0 for never.

    A longer pause spares pods from failing while another scheduler fills the node; a shorter one uses its
    capacity sooner. kube-scheduler does not have this field.
    """
    node_pause_max_seconds: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64)] = 60
    """The longest pause of a node. kube-scheduler does not have this field."""
    attempt_budget: Duration = Duration(750_000_000)
    """How long an attempt may hold the loop at a time, before it is stopped and its pod quarantined.

    A longer budget lets slow plugins evaluate more nodes; a shorter one delays the lease, the watches and
    other pods less. kube-scheduler does not have this field.
    """
    sharding: Sharding = Sharding()
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    emulated_version: str = ""
    """The version of Kubernetes whose kube-scheduler is followed, for example 1.36; "" for the API server's own.

    kube-scheduler has this as a flag only.
    """
    feature_gates: dict[str, bool] = {}
    """Gate -> whether it is on; `features_of` has the result. kube-scheduler has this as a flag only."""
    delay_cache_until_active: bool = False
    """Whether kube-scheduler fills its cache only once leading; it has no effect here."""
