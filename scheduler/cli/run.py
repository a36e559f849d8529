"""`custom-scheduler run`: the daemon."""

from __future__ import annotations

import logging
import random
import signal
import sys
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from scheduler.app.config_file import ConfigFile
from scheduler.app.config_map import ConfigMapKey, ConfigMapSource, read_config_map, with_policies
from scheduler.app.daemon import Daemon
from scheduler.app.default_scheduler import refuse_beside_default_scheduler
from scheduler.app.following import following_config_map, following_file
from scheduler.app.memory import settle_memory
from scheduler.app.reloader import Reloader
from scheduler.app.serving import Serving
from scheduler.cli import configuration as configuration_flags
from scheduler.cli import serving as serving_flags
from scheduler.cli.leader_election import leader_election_flags
from scheduler.cli.options import command, duration_option, option
from scheduler.cli.process import (
    call_on_signal,
    kubeconfig_option,
    logging_format_option,
    run_in_loop,
    stop_on_signals,
)
from scheduler.client.connect import connect
from scheduler.clock import SystemClock
from scheduler.configuration.load import default
from scheduler.configuration.types import API_VERSION
from scheduler.configuration.write import to_yaml
from scheduler.errors import ConfigurationError, FieldError, LeadershipLostError
from scheduler.logs import configure_logging, level_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.connection import ApiConnection
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap
    from scheduler.logs import LogFormat
    from scheduler.objects.durations import Duration

logger = logging.getLogger(__name__)


@command()
@configuration_flags.config
@configuration_flags.config_map
@configuration_flags.follow_config
@kubeconfig_option
@serving_flags.bind_address
@serving_flags.secure_port
@serving_flags.http_port
@serving_flags.tls_cert_file
@serving_flags.tls_private_key_file
@serving_flags.authorization_always_allow_paths
@option("--v", "-v", default=0, help="How much is logged: 0 little, 2 every pod that is bound.", metavar="N")
@logging_format_option
@duration_option(
    "--pod-max-in-unschedulable-pods-duration",
    default="5m",
    help="How long a rejected pod waits for an event that may help it, before it is tried all the same.",
)
@configuration_flags.write_config_to
@option("--no-bind", is_flag=True, help="Decide, explain and count, and write nothing, not even the lease.")
@option(
    "--replace-default-scheduler",
    is_flag=True,
    help="Run a profile called default-scheduler although another scheduler of that name is at work.",
)
@leader_election_flags
def run(
    config: Path | None,
    config_map: ConfigMapKey | None,
    follow_config: bool,
    kubeconfig: Path | None,
    bind_address: str,
    secure_port: int,
    http_port: int,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    authorization_always_allow_paths: str,
    v: int,
    logging_format: LogFormat | None,
    pod_max_in_unschedulable_pods_duration: Duration,
    write_config_to: Path | None,
    no_bind: bool,
    replace_default_scheduler: bool,
    overriding: Callable[[Configuration], Configuration],
) -> None:
    """Place the pods whose spec.schedulerName is one of the configuration's profiles."""
    configure_logging(level_of(v), logging_format)
    settle_memory()
    if config is not None and config_map is not None:
        raise ConfigurationError([FieldError("--config-map", "cannot be given beside --config")])
    serving = Serving(
        bind_address,
        secure_port,
        http_port,
        tls_cert_file,
        tls_private_key_file,
        [path for path in authorization_always_allow_paths.split(",") if path],
    )
    work = _run(
        config,
        config_map,
        overriding,
        kubeconfig=str(kubeconfig) if kubeconfig else None,
        serving=serving,
        write_config_to=write_config_to,
        follow=follow_config,
        max_in_unschedulable_seconds=pod_max_in_unschedulable_pods_duration.seconds,
        no_bind=no_bind,
        may_replace=no_bind or replace_default_scheduler,
    )
    try:
        run_in_loop(work)
    except LeadershipLostError as lost:
        logger.error(str(lost))  # noqa: TRY400 - how it came to that was logged where it happened
        sys.exit(1)


def _write(configuration: Configuration, path: Path) -> None:
    path.write_text(to_yaml(configuration))


async def _read(
    config: Path | None, config_map: ConfigMapKey | None, kubeconfig: str | None, stack: AsyncExitStack
) -> tuple[Configuration, ConfigFile | None, ConfigMapSource | None, ApiConnection | None]:
    """Return the configuration to begin with, what it is followed by, and the connection if that took one."""
    policies: dict[PolicyConfigMap, str] = {}
    if config_map is not None:
        connection = await stack.enter_async_context(connect(kubeconfig))
        folder = stack.enter_context(TemporaryDirectory(prefix="custom-scheduler-"))
        source = ConfigMapSource(config_map, Path(folder), policies)
        first = partial(source.first, await read_config_map(connection, config_map))
        return (
            await with_policies(first, policies, lambda _: nullcontext(connection)),
            None,
            source,
            connection,
        )
    if config is None:
        return default(), None, None, None
    file = ConfigFile(config, policies)
    read = await with_policies(file.load, policies, lambda named: connect(kubeconfig or named or None))
    return read, file, None, None


async def _run(
    config: Path | None,
    config_map: ConfigMapKey | None,
    overriding: Callable[[Configuration], Configuration],
    *,
    kubeconfig: str | None,
    serving: Serving,
    write_config_to: Path | None,
    follow: bool,
    max_in_unschedulable_seconds: float,
    no_bind: bool,
    may_replace: bool,
) -> None:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        read, file, source, connection = await _read(config, config_map, kubeconfig, stack)
        configuration = overriding(read)
        if write_config_to is not None:
            _write(configuration, write_config_to)
            return
        for note in configuration.notes:
            logger.info("Setting has no effect", extra={"field": note.path, "why": note.text})
        if configuration.api_version != API_VERSION:
            logger.info(
                "Configuration is of an old version; `custom-scheduler check --convert` prints today's form",
                extra={"api_version": configuration.api_version},
            )
        if connection is None:
            kubeconfig = kubeconfig or configuration.settings.client_connection.kubeconfig or None
            connection = await stack.enter_async_context(connect(kubeconfig))

        async def settle(read: Configuration) -> Configuration:
            settled = overriding(read)
            if not may_replace:
                await refuse_beside_default_scheduler(connection, settled)
            return settled

        clock = SystemClock()
        daemon = Daemon(
            connection,
            await settle(configuration),
            clock=clock,
            random=random.Random(),
            no_bind=no_bind,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
        )
        daemon.parts.budget.take_clock()
        stack.callback(daemon.parts.budget.give_clock_back)
        call_on_signal(signal.SIGUSR2, daemon.consistency.ask)  # as kube-scheduler's cache debugger
        if serving.secure_port or serving.http_port:
            from scheduler.app.pages import serving_pages  # an HTTP server takes half as long as all the rest

            await stack.enter_async_context(
                serving_pages(daemon, configuration, serving, connection=connection, stop=stop, clock=clock)
            )
        reloader = Reloader(daemon, settle=settle, clock=clock)
        if follow and file is not None:
            await stack.enter_async_context(following_file(daemon, reloader, file))
        if follow and source is not None:
            await stack.enter_async_context(
                following_config_map(daemon, reloader, source, connection=connection, kubeconfig=kubeconfig)
            )
        await daemon.run(stop)
    logger.info("Stopped")
