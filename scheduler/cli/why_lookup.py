"""What all forms of `kubectl why` share: the cluster, and the evaluation if no daemon answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from scheduler.configuration.load import load, parse
from scheduler.configuration.overrides import with_feature_gates
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.errors import ConfigurationError, FieldError
from scheduler.kube.client.connect import Credentials, connected
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.live_cluster import read_cluster
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    from scheduler.kube.client.connection import ApiConnection


@dataclass(frozen=True, slots=True)
class Lookup:
    """The cluster, and the form of the output.

    Attributes:
        kubeconfig: path of the kubeconfig, as in `Credentials`.
        context: context of the kubeconfig, as in `Credentials`.
        namespace: namespace of the request; None for the context's.
        config: configuration with the profiles to use; None for the default plugins.
        feature_gates: gates that override the configuration's.
        as_json: whether to print JSON.
        all_nodes: whether tables show every node.
    """

    kubeconfig: str | None
    context: str
    namespace: str | None
    config: Path | None
    feature_gates: Mapping[str, bool]
    as_json: bool
    all_nodes: bool

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[ApiConnection, str]]:
        """Connect; yield the connection, and the namespace of objects that name none.

        Raises:
            ConfigurationError: the kubeconfig is missing or broken.
        """
        credentials = Credentials(self.kubeconfig, self.context)
        async with connected(credentials) as connection:
            yield connection, self.namespace or credentials.namespace

    async def scheduler(
        self, connection: ApiConnection, names: Iterable[str]
    ) -> tuple[OfflineScheduler, ClusterFile]:
        """Return a scheduler with the current state of the cluster, and that state.

        Args:
            connection: to the API server.
            names: schedulerNames of the pods; without a configuration, each gets the default plugins.

        Raises:
            ConfigurationError: the configuration is wrong, or has no profile of one of the names.
            ApiError: the cluster cannot be read.
        """
        # In a thread, because plugins may fetch their data in an event loop of their own.
        scheduler = await asyncio.to_thread(self._without_cluster, sorted(set(names)))
        cluster = await read_cluster(connection, scheduler.needs.kinds)
        scheduler.fill(cluster)
        return scheduler, cluster

    def _without_cluster(self, names: list[str]) -> OfflineScheduler:
        if self.config is not None:
            scheduler = OfflineScheduler(
                ClusterFile(), with_feature_gates(load(self.config), self.feature_gates)
            )
            for name in names:
                if name not in scheduler.frameworks:
                    there = ", ".join(scheduler.frameworks)
                    problem = f"there is no profile {name}; the profiles are {there}"
                    raise ConfigurationError([FieldError("profiles", problem)], str(self.config))
            return scheduler
        profiles: list[dict[str, Any]] = [{"schedulerName": name} for name in names]
        document = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}
        configuration = parse(yaml.safe_dump(document))
        return OfflineScheduler(ClusterFile(), with_feature_gates(configuration, self.feature_gates))

    @property
    def plugins(self) -> str:
        """Description of the plugins that this process uses."""
        return "kube-scheduler's default plugins" if self.config is None else f"the profiles of {self.config}"
