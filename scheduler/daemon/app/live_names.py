"""Checks whether another scheduler uses the lease of a configuration, or schedules pods under its names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from scheduler.configuration.load import parse
from scheduler.daemon.app.config_map import CONFIG_MAPS, ConfigMapKey
from scheduler.daemon.app.default_scheduler import refuse_beside_default_scheduler
from scheduler.daemon.app.rights import Named
from scheduler.errors import ApiError, ConfigurationError
from scheduler.kube.client.lease import Lease
from scheduler.kube.client.resources import EVENTS, LEASES, NODES, PODS, Resource
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import KubeSchedulerConfiguration
    from scheduler.kube.client.connection import ApiConnection


class Metadata(msgspec.Struct):
    """Name and namespace of an object."""

    name: str = ""
    namespace: str = ""


class LiveContainer(msgspec.Struct):
    """The command of a container."""

    command: list[str] = msgspec.field(default_factory=list)
    args: list[str] = msgspec.field(default_factory=list)


class LivePodSpec(msgspec.Struct, rename="camel"):
    """The ServiceAccount and the containers of a pod."""

    service_account_name: str = "default"
    containers: list[LiveContainer] = msgspec.field(default_factory=list)


class LivePod(msgspec.Struct):
    """The fields of a pod that tell whether it runs a scheduler, and which one."""

    metadata: Metadata
    spec: LivePodSpec = msgspec.field(default_factory=LivePodSpec)


class Template(msgspec.Struct):
    """The pod template of a Deployment."""

    spec: LivePodSpec = msgspec.field(default_factory=LivePodSpec)


class DeploymentSpec(msgspec.Struct):
    """The template and the number of pods."""

    template: Template = msgspec.field(default_factory=Template)
    replicas: int = 1


class Deployment(msgspec.Struct):
    """The fields of a Deployment that tell whether its pods run a scheduler, and how many."""

    metadata: Metadata
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)


class LiveEvent(msgspec.Struct, rename="camel"):
    """The reporter of an event."""

    reporting_instance: str = ""


class ConfigMapData(msgspec.Struct):
    """The texts of a ConfigMap."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


T = TypeVar("T")

_DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
_LABEL: Final = "app.kubernetes.io/name=custom-scheduler"
"""The label of every Deployment created from the manifests, under any name."""
_CONFIG_MAP_FLAG: Final = "--config-map"
_USUAL_LEASE_SECONDS: Final = 15
_ASK_SECONDS: Final = 1.0
_LATEST_EVENTS: Final = {"limit": "500"}


@dataclass(frozen=True, slots=True)
class NameCheck:
    """A result.

    Attributes:
        text: the result, and what to do about it.
        is_taken: whether another scheduler is running; otherwise the text is only informative.
    """

    text: str
    is_taken: bool = False


class LiveNames:
    """Searches for other schedulers.

    Args:
        connection: connection to the API server.
        account: this scheduler's ServiceAccount: its pods are not other schedulers.
    """

    def __init__(self, connection: ApiConnection, account: Named) -> None:
        self._connection = connection
        self._account = account

    async def look(self, configuration: Configuration) -> AsyncIterator[NameCheck]:
        """Yield all results.

        Objects that may not be read are reported too; reading them needs an administrator.

        Raises:
            ApiError: the API server does not answer.
        """
        settings = configuration.settings
        names = [profile.scheduler_name for profile in settings.profiles]
        looks = [
            *((self._kube_scheduler(configuration),)),
            *((self._lease(settings),) if settings.leader_election.leader_elect else ()),
            *(self._events(name) for name in names),
            self._deployments(names),
        ]
        for look in looks:
            try:
                async for finding in look:
                    yield finding
            except ApiError as error:
                if error.status != 403:
                    raise
                yield NameCheck(f"not looked at: {error}; an administrator may")

    async def _kube_scheduler(self, configuration: Configuration) -> AsyncIterator[NameCheck]:
        try:
            await refuse_beside_default_scheduler(self._connection, configuration)
        except ConfigurationError as error:
            for fault in error.errors:
                yield NameCheck(f"{fault.path}: {fault.problem}", is_taken=True)

    async def _lease(self, settings: KubeSchedulerConfiguration) -> AsyncIterator[NameCheck]:
        """Yield another holder of the lease: renewals show whether it is alive."""
        election = settings.leader_election
        where = Named(election.resource_namespace, election.resource_name)
        first = await self._read_lease(where)
        if first is None or not first.record.holder:
            return
        holder = first.record.holder
        pod = await self._pod_called(holder.rpartition("_")[0] or holder)
        if pod is not None and self._is_ours(pod):
            return
        if settings.sharding.enabled and await self._read_lease(Named(where.namespace, holder)) is not None:
            return  # a replica, which has a Lease of its own
        whose = f"lease {where} is held by {holder}{f', {_described(pod)}' if pod else ''}"
        for _ in range(int((first.record.lease_duration_seconds or _USUAL_LEASE_SECONDS) / _ASK_SECONDS) + 1):
            await asyncio.sleep(_ASK_SECONDS)
            now = await self._read_lease(where)
            if now is None or now.record.holder != holder:
                return
            if now.record != first.record:
                yield NameCheck(
                    f"{whose}, which renews it and is none of {self._account}: as long as it does, nothing here places "
                    "a pod; give leaderElection.resourceName another value, or end that one",
                    is_taken=True,
                )
                return
        yield NameCheck(f"{whose}, which renews it no more: it will be taken over")

    async def _events(self, scheduler_name: str) -> AsyncIterator[NameCheck]:
        """Yield other schedulers that recently reported to have scheduled pods under a name: events are kept for an hour."""
        selector = f"reportingController={scheduler_name},reason=Scheduled"
        events = await self._list(EVENTS, LiveEvent, {"fieldSelector": selector, **_LATEST_EVENTS})
        for instance in sorted({event.reporting_instance for event in events}):
            host = instance.removeprefix(f"{scheduler_name}-")
            pod = await self._pod_called(host)
            if pod is not None:
                who = "" if self._is_ours(pod) else _described(pod)
            else:
                who = f"a scheduler on the node {host}" if await self._is_node(host) else ""
            if who:
                yield NameCheck(
                    f"schedulerName {scheduler_name}: {who} places pods of that name as well (event Scheduled by "
                    f"{instance}); both would place the same pods: choose another name, or end that one",
                    is_taken=True,
                )

    async def _deployments(self, names: Iterable[str]) -> AsyncIterator[NameCheck]:
        """Yield other installations of this scheduler whose configuration has one of the names."""
        for deployment in await self._list(_DEPLOYMENTS, Deployment, {"labelSelector": _LABEL}):
            spec = deployment.spec.template.spec
            where = Named(deployment.metadata.namespace, deployment.metadata.name)
            is_ours = Named(where.namespace, spec.service_account_name) == self._account
            followed = None if is_ours or not deployment.spec.replicas else _followed(spec.containers)
            if followed is None:
                continue
            for name in sorted(set(names) & await self._names_in(followed)):
                yield NameCheck(
                    f"schedulerName {name}: the Deployment {where} has it too, by ConfigMap {followed.namespace}/"
                    f"{followed.name}; both would place the same pods unless they share a lease: choose another name",
                    is_taken=True,
                )

    async def _names_in(self, followed: ConfigMapKey) -> set[str]:
        """Return the schedulerNames of a configuration; none if it does not exist or is invalid."""
        found = await self._get(CONFIG_MAPS.path(followed.namespace, followed.name), ConfigMapData)
        data = found.data if found else {}
        texts = (
            [data[followed.key]]
            if followed.key in data
            else [text for key, text in data.items() if not key.endswith(".py")]
        )
        names: set[str] = set()
        for text in texts:
            try:
                names |= {profile.scheduler_name for profile in parse(text, version=None).settings.profiles}
            except ConfigurationError:
                continue  # that installation reports the error itself
        return names

    def _is_ours(self, pod: LivePod) -> bool:
        return Named(pod.metadata.namespace, pod.spec.service_account_name) == self._account

    async def _pod_called(self, name: str) -> LivePod | None:
        """Return the pod with a host name, this scheduler's if there are several."""
        pods = await self._list(PODS, LivePod, {"fieldSelector": f"metadata.name={name}"}) if name else []
        return next((pod for pod in pods if self._is_ours(pod)), pods[0] if pods else None)

    async def _is_node(self, name: str) -> bool:
        return bool(await self._list(NODES, LivePod, {"fieldSelector": f"metadata.name={name}"}))

    async def _read_lease(self, where: Named) -> Lease | None:
        try:
            answer = await self._connection.send(Request("GET", LEASES.path(*where)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return Lease.decode(answer.body, str(where))

    async def _get(self, path: str, kind: type[T]) -> T | None:
        try:
            answer = await self._connection.send(Request("GET", path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return msgspec.json.decode(answer.body, type=kind)

    async def _list(self, resource: Resource, kind: type[T], params: Mapping[str, str]) -> list[T]:
        answer = await self._connection.send(Request("GET", resource.path(), params=params))
        items: list[Any] = msgspec.json.decode(answer.body).get("items") or []
        return [msgspec.convert(item, kind) for item in items]


def _described(pod: LivePod) -> str:
    return f"the pod {pod.metadata.namespace}/{pod.metadata.name} of ServiceAccount {pod.spec.service_account_name}"


def _followed(containers: Iterable[LiveContainer]) -> ConfigMapKey | None:
    """Return the ConfigMap that a container's flags name; None for a file, which cannot be read from here."""
    for container in containers:
        words = [*container.command, *container.args]
        for flag, value in zip(words, [*words[1:], ""], strict=True):
            name, _, given = flag.partition("=")
            if name == _CONFIG_MAP_FLAG:
                try:
                    return ConfigMapKey.parse(given or value)
                except ValueError:
                    return None
    return None
