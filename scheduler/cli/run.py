"""`custom-scheduler run`: the daemon."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from pathlib import Path
from typing import Annotated

import typer

from scheduler.app.daemon import Daemon
from scheduler.app.default_scheduler import refuse_beside_default_scheduler
from scheduler.app.memory import settle_memory
from scheduler.app.pages import Serving, serving_pages
from scheduler.cli.leader_election import (
    LeaderElect,
    LeaseDuration,
    RenewDeadline,
    ResourceName,
    ResourceNamespace,
    RetryPeriod,
    duration,
)
from scheduler.cli.serving import (
    AlwaysAllowPaths,
    BindAddress,
    HttpPort,
    SecurePort,
    TlsCertFile,
    TlsPrivateKeyFile,
)
from scheduler.client.connect import connect
from scheduler.clock import SystemClock
from scheduler.configuration.durations import Duration
from scheduler.configuration.load import Configuration, default, load
from scheduler.configuration.overrides import with_leader_election
from scheduler.configuration.write import to_yaml
from scheduler.errors import LeadershipLostError
from scheduler.logs import LogFormat, configure_logging
from scheduler.server.access import ALWAYS_ALLOWED

logger = logging.getLogger(__name__)

_ALWAYS_ALLOWED = ",".join(ALWAYS_ALLOWED)


def run(
    config: Annotated[
        Path | None,
        typer.Option(
            help="KubeSchedulerConfiguration file; without it, the default plugins.", metavar="FILE"
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="How to reach the API server; without it, as a pod in the cluster.", metavar="FILE"
        ),
    ] = None,
    bind_address: BindAddress = "0.0.0.0",  # noqa: S104 - a pod is probed and scraped from outside
    secure_port: SecurePort = 10259,
    http_port: HttpPort = 0,
    tls_cert_file: TlsCertFile = None,
    tls_private_key_file: TlsPrivateKeyFile = None,
    authorization_always_allow_paths: AlwaysAllowPaths = _ALWAYS_ALLOWED,
    v: Annotated[
        int, typer.Option("--v", "-v", help="How much is logged: 0 little, 4 every decision.", metavar="N")
    ] = 0,
    logging_format: Annotated[
        LogFormat | None,
        typer.Option(help="How log lines look; without it, text on a terminal and JSON elsewhere."),
    ] = None,
    pod_max_in_unschedulable_pods_duration: Annotated[
        Duration,
        typer.Option(
            help="How long a rejected pod waits for an event that may help it, before it is tried all the same.",
            metavar="DURATION",
            parser=duration,
        ),
    ] = "5m",  # type: ignore[assignment]  # noqa: RUF100 - typer parses defaults like what is typed
    write_config_to: Annotated[
        Path | None,
        typer.Option(help="Write the configuration in effect to a file, and end.", metavar="FILE"),
    ] = None,
    no_bind: Annotated[
        bool,
        typer.Option("--no-bind", help="Decide, explain and count, and write nothing, not even the lease."),
    ] = False,
    replace_default_scheduler: Annotated[
        bool,
        typer.Option(
            "--replace-default-scheduler",
            help="Run a profile called default-scheduler although another scheduler of that name is at work.",
        ),
    ] = False,
    leader_elect: LeaderElect = None,
    leader_elect_lease_duration: LeaseDuration = None,
    leader_elect_renew_deadline: RenewDeadline = None,
    leader_elect_retry_period: RetryPeriod = None,
    leader_elect_resource_name: ResourceName = None,
    leader_elect_resource_namespace: ResourceNamespace = None,
) -> None:
    """Place the pods whose spec.schedulerName is one of the configuration's profiles."""
    configure_logging(logging.DEBUG if v >= 4 else logging.INFO, logging_format)
    settle_memory()
    configuration = with_leader_election(
        default() if config is None else load(config),
        leader_elect=leader_elect,
        lease_duration=leader_elect_lease_duration,
        renew_deadline=leader_elect_renew_deadline,
        retry_period=leader_elect_retry_period,
        resource_name=leader_elect_resource_name,
        resource_namespace=leader_elect_resource_namespace,
    )
    if write_config_to is not None:
        write_config_to.write_text(to_yaml(configuration))
        return
    serving = Serving(
        bind_address,
        secure_port,
        http_port,
        tls_cert_file,
        tls_private_key_file,
        [path for path in authorization_always_allow_paths.split(",") if path],
    )
    for note in configuration.notes:
        logger.info("Setting has no effect", extra={"field": note.path, "why": note.text})
    try:
        asyncio.run(
            _run(
                configuration,
                str(kubeconfig or configuration.settings.client_connection.kubeconfig),
                serving,
                max_in_unschedulable_seconds=pod_max_in_unschedulable_pods_duration.seconds,
                no_bind=no_bind,
                may_replace=no_bind or replace_default_scheduler,
            )
        )
    except LeadershipLostError as lost:
        logger.error(str(lost))  # noqa: TRY400 - how it came to that was logged where it happened
        raise typer.Exit(1) from lost


async def _run(
    configuration: Configuration,
    kubeconfig: str,
    serving: Serving,
    *,
    max_in_unschedulable_seconds: float,
    no_bind: bool,
    may_replace: bool,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with connect(kubeconfig or None) as connection:
        if not may_replace:
            await refuse_beside_default_scheduler(connection, configuration)
        clock = SystemClock()
        daemon = Daemon(
            connection,
            configuration,
            clock=clock,
            random=random.Random(),
            no_bind=no_bind,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        )
        async with serving_pages(
            daemon, configuration, serving, connection=connection, stop=stop, clock=clock
        ):
            await daemon.run(stop)
    logger.info("Stopped")
