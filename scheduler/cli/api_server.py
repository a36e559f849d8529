"""`custom-scheduler api-server`: serves the simulated API server alone."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import click

from scheduler.cli.options import command, feature_gates_option, file_option, option, port_option
from scheduler.cli.process import run_in_loop, stop_on_signals
from scheduler.clock import SystemClock
from scheduler.configuration.feature_gates import DEFAULT_VERSION, VERSIONS, gate_faults
from scheduler.configuration.load import default
from scheduler.configuration.overrides import GivenFeatures
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.daemon.logs import configure_logging
from scheduler.errors import ConfigurationError, FieldError
from scheduler.tools.board.cluster_observer import WatchOnDemand
from scheduler.tools.board.sign_in import serving_board
from scheduler.tools.simulator.access.authentication import may_write
from scheduler.tools.simulator.external_controllers import KubeletOptions
from scheduler.tools.simulator.scenarios.clusters import furnish, heterogeneous
from scheduler.tools.simulator.scenarios.scenario import Scenario, gang_faults, load_scenario
from scheduler.tools.simulator.scenarios.scenario_player import ScenarioPlayer
from scheduler.tools.simulator.server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

_NODES: Final = 30
_HEARTBEAT_SECONDS: Final = 10.0
_SERVICE: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
    "spec": {
        "clusterIP": "10.96.0.1",
        "clusterIPs": ["10.96.0.1"],
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}],
    },
}
"""The Service that every API server creates for itself."""


@command()
@option(
    "--nodes",
    type=click.IntRange(min=0),
    help="Number of nodes, of mixed shapes; 30, or none with a scenario.",
)
@file_option("--scenario", help="File with the initial objects and the steps of the simulation.")
@file_option("--kubeconfig", default="custom-scheduler.kubeconfig", help="File to write the kubeconfig to.")
@port_option("--port", default=0, help="Port on 127.0.0.1; 0 for any free port.")
@option("--seed", default=7, help="Seed of the random shapes of the nodes.")
@option("--tls", is_flag=True, help="Serve HTTPS, and require the token in the kubeconfig.")
@option(
    "--rbac",
    is_flag=True,
    help="Authorize requests by Roles and ClusterRoles; implies --tls. The token in the kubeconfig is an "
    "administrator's.",
)
@option(
    "--controllers/--no-controllers",
    default=True,
    help="Simulate the controllers: create pods, bind volumes and collect garbage. Without them, run a real "
    "kube-controller-manager; kubelets and drivers are simulated in both cases, and renew their nodes' leases.",
)
@option(
    "--kubelets/--no-kubelets",
    default=True,
    help="Simulate the kubelets, and the usage of nodes and pods that `kubectl top` shows. Without them, pods do not run "
    "until `custom-scheduler kubelets` or real kubelets do it.",
)
@option(
    "--kubernetes-version",
    type=click.Choice(VERSIONS),
    default=None,
    help=f"The Kubernetes version whose APIs are served; that of the scenario, or {DEFAULT_VERSION}.",
)
@feature_gates_option(
    "Enable or disable features of the API: a server does not keep the fields of disabled features. The defaults are "
    "those of the scheduler in that version."
)
def api_server(
    nodes: int | None,
    scenario: Path | None,
    kubeconfig: Path,
    port: int,
    seed: int,
    tls: bool,
    rbac: bool,
    controllers: bool,
    kubelets: bool,
    kubernetes_version: str | None,
    feature_gates: dict[str, bool],
) -> None:
    """Serve the API of a simulated cluster, for kubectl and for schedulers."""
    configure_logging(logging.INFO)
    plan = None if scenario is None else load_scenario(scenario)
    if not may_write(kubeconfig):
        message = f"{kubeconfig} exists already, and is the kubeconfig of another cluster; name another file"
        raise ConfigurationError([FieldError("--kubeconfig", message)])
    if nodes is None:
        nodes = _NODES if plan is None else 0
    version = kubernetes_version or (DEFAULT_VERSION if plan is None else plan.kubernetes_version)
    faults = [FieldError("--feature-gates", fault) for _, fault in gate_faults(feature_gates, version)]
    if faults:
        raise ConfigurationError(faults)
    if plan is not None:
        faults = gang_faults(plan.workloads, version)
        if faults:
            raise ConfigurationError(faults, str(scenario))
        plan = replace(plan, kubernetes_version=version)
    # kubectl shows its token over TLS only.
    tls = tls or rbac
    server = ApiServer(
        clock=SystemClock(),
        port=port,
        tls=tls,
        rbac=rbac,
        kubelet=kubelets and KubeletOptions(heartbeat_seconds=_HEARTBEAT_SECONDS, metrics=True),
        controllers=controllers,
        version=version,
        feature_gates=feature_gates,
        normal_events=True,
    )
    run_in_loop(_serve(server, heterogeneous(nodes, seed=seed), plan, kubeconfig.absolute(), port=port))


async def _serve(
    server: ApiServer,
    nodes: list[dict[str, Any]],
    scenario: Scenario | None,
    kubeconfig: Path,
    *,
    port: int,
) -> None:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigurationError(
                [FieldError("--port", f"cannot listen on 127.0.0.1:{port}: {reason}")]
            ) from error
        server.store.apply(_SERVICE)
        for node in nodes:
            server.store.create("nodes", node)
        if nodes:
            furnish(server, nodes)
        playing = None
        if scenario is not None:
            player = ScenarioPlayer(server, scenario)
            await player.set_up()
            playing = asyncio.create_task(player.play(), name="scenario")
        try:
            written = server.write_kubeconfig(kubeconfig)
        except OSError as error:
            raise ConfigurationError(
                [FieldError("--kubeconfig", f"{kubeconfig}: {error.strerror}")]
            ) from error
        count = len(server.store.list("nodes"))
        watched = WatchOnDemand(
            str(written), default(), ServerVersions(GivenFeatures()), clock=SystemClock(), random=Random()
        )
        await stack.enter_async_context(watched.running())
        board = await stack.enter_async_context(serving_board(watched))
        click.echo(
            f"{server.url} serves {count} nodes\nexport KUBECONFIG={shlex.quote(str(written))}\n"
            f"Board: {board}"
        )
        await stop.wait()
        if playing is not None:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
