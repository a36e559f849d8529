"""`custom-scheduler run`: the daemon."""

from __future__ import annotations

import logging
import random
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from scheduler.cli import run_flags
from scheduler.cli.options import command, features_options, flags_of, longest_wait_option, option
from scheduler.cli.process import (
    call_on_signal,
    kubeconfig_option,
    logging_format_option,
    run_in_loop,
    stop_on_signals,
)
from scheduler.cli.run_flags import ROOM, leader_election_flags
from scheduler.clock import SystemClock
from scheduler.configuration.load import default, load
from scheduler.configuration.overrides import with_features
from scheduler.configuration.types import API_VERSION
from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.attempt_marker import AttemptMarker, quarantine
from scheduler.daemon.app.config_file import ConfigFile, lease_of
from scheduler.daemon.app.config_map import ConfigMapKey, ConfigMapSource, read_config_map, with_policies
from scheduler.daemon.app.daemon import Daemon
from scheduler.daemon.app.default_scheduler import refuse_beside_default_scheduler
from scheduler.daemon.app.following import (
    following_config_map,
    following_file,
    following_profiles,
    following_server,
)
from scheduler.daemon.app.last_good import LastGood
from scheduler.daemon.app.loop_watch import watching_loop
from scheduler.daemon.app.memory import settle_memory
from scheduler.daemon.app.plugin_dry_run import dry_run_plugins
from scheduler.daemon.app.profile_objects.profiles import ClusterProfiles
from scheduler.daemon.app.profile_objects.version_selection import ProfileStatusWriter
from scheduler.daemon.app.reloader import Offer, Reloader, log_notes, outcome
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.daemon.logs import configure_logging, level_of
from scheduler.daemon.server import Serving
from scheduler.errors import ConfigurationError, FieldError, LeadershipLostError
from scheduler.kube.client.connect import connect
from scheduler.kube.client.events import CONTROLLER
from scheduler.kube.client.requests import StartupRequests, StoppedError
from scheduler.worker_thread import TookTooLongError, in_a_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap
    from scheduler.daemon.logs import LogFormat
    from scheduler.daemon.recording import RecordingLimits
    from scheduler.daemon.recording.recording import Recording
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.kube.client.requests import Requests
    from scheduler.objects.wording import Duration

logger = logging.getLogger(__name__)

_SHADOW = "Shadowing another scheduler"


@command()
@run_flags.config
@run_flags.config_map
@run_flags.follow_config
@features_options
@run_flags.scheduler_profiles
@kubeconfig_option
@run_flags.bind_address
@run_flags.secure_port
@run_flags.http_port
@run_flags.tls_cert_file
@run_flags.tls_private_key_file
@run_flags.authorization_always_allow_paths
@run_flags.board
@run_flags.whatif
@option(
    "--v",
    "-v",
    default=0,
    help="Log level: 0 for few messages, 2 for every pod that is bound or unschedulable.",
    metavar="N",
)
@logging_format_option
@longest_wait_option
@run_flags.write_config_to
@run_flags.last_good_config
@option(
    "--record",
    type=ROOM,
    metavar=ROOM.name,
    help="Record input and decisions into files in a directory. The oldest files are deleted when they exceed the size "
    "(default 1Gi) or the age in hours (default 24). `custom-scheduler replay` replays the recording.",
)
@option(
    "--no-bind",
    is_flag=True,
    help="Make decisions, explanations and metrics, but write nothing, not even the lease.",
)
@option(
    "--shadow",
    default="",
    help="Write nothing: decide for the pods of this other scheduler, and report decisions that differ; by the default "
    "profile, and by that of --config.",
    metavar="NAME",
    section=_SHADOW,
)
@option(
    "--shadow-sampling",
    type=click.IntRange(0, 100),
    default=0,
    help="The other scheduler's percentageOfNodesToScore: a node that it may not have checked is not reported. 0 is "
    "kube-scheduler's default, 100 checks all nodes.",
    metavar="PERCENT",
    section=_SHADOW,
)
@option(
    "--replace-default-scheduler",
    is_flag=True,
    help="Run a profile named default-scheduler even if another scheduler of that name is running.",
)
@leader_election_flags
def run(
    config: Path | None,
    config_map: ConfigMapKey | None,
    follow_config: bool,
    features: GivenFeatures,
    scheduler_profiles: bool,
    kubeconfig: Path | None,
    bind_address: str,
    secure_port: int,
    http_port: int,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    authorization_always_allow_paths: str,
    board: bool,
    whatif: bool,
    v: int,
    logging_format: LogFormat | None,
    pod_max_in_unschedulable_pods_duration: Duration,
    write_config_to: Path | None,
    last_good_config: Path | None,
    record: RecordingLimits | None,
    no_bind: bool,
    shadow: str,
    shadow_sampling: int,
    replace_default_scheduler: bool,
    overriding: Callable[[Configuration], Configuration],
) -> None:
    """Run the scheduler: place the pods whose spec.schedulerName is one of the configuration's profiles."""
    configure_logging(level_of(v), logging_format)
    settle_memory()
    if config is not None and config_map is not None:
        raise ConfigurationError([FieldError("--config-map", "cannot be combined with --config")])
    context = click.get_current_context()
    is_default = context.get_parameter_source("bind_address") is ParameterSource.DEFAULT
    serving = Serving(
        bind_address,
        secure_port,
        http_port,
        tls_cert_file,
        tls_private_key_file,
        [path for path in authorization_always_allow_paths.split(",") if path],
        flags_of(context),
        run_flags.LOOPBACK if is_default else "",  # plain HTTP has no authorization
    )
    path = str(kubeconfig) if kubeconfig else None
    if shadow:
        from scheduler.cli.shadowing import run_shadow  # few do

        if config_map is not None or scheduler_profiles:
            raise ConfigurationError(
                [FieldError("--shadow", "cannot be combined with --config-map and --scheduler-profiles")]
            )
        candidate = None if config is None else load(config, version=None)
        run_in_loop(
            run_shadow(
                shadow,
                candidate,
                ServerVersions(features),
                sampling=shadow_sampling,
                kubeconfig=path,
                serving=serving,
            )
        )
        return
    work = _run(
        config,
        config_map,
        overriding,
        features=features,
        kubeconfig=path,
        serving=serving,
        board=board,
        whatif=whatif,
        write_config_to=write_config_to,
        last_good=last_good_config,
        follow=follow_config,
        scheduler_profiles=scheduler_profiles,
        max_in_unschedulable_seconds=pod_max_in_unschedulable_pods_duration.seconds,
        no_bind=no_bind,
        may_replace=no_bind or replace_default_scheduler,
        record=record,
    )
    try:
        run_in_loop(work)
    except LeadershipLostError as lost:
        logger.error(str(lost))  # noqa: TRY400 - the cause is logged already
        sys.exit(1)
    except StoppedError:
        logger.info("Stopped")


def _write(configuration: Configuration, path: Path) -> None:
    try:
        path.write_text(to_yaml(configuration))
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror or error}"
        raise ConfigurationError([FieldError("--write-config-to", problem)]) from error


@dataclass(slots=True)
class _Origin:
    """Source of the configuration.

    Attributes:
        read: reads it for the first time.
        name: name for messages; "" for the built-in defaults.
        file: the file that is followed, if it is a file.
        config_map: the ConfigMap that is followed, if it is in one.
        connection: connection to the API server, if the ConfigMap is read from there.
    """

    read: Callable[[], Awaitable[Configuration]]
    name: str = ""
    file: ConfigFile | None = None
    config_map: ConfigMapSource | None = None
    connection: ApiConnection | None = None

    @property
    def followed(self) -> ConfigFile | ConfigMapSource | None:
        return self.file or self.config_map


def _showing_that_it_waits(serving: Serving) -> AbstractAsyncContextManager[None]:
    from scheduler.daemon.app.pages import waiting_pages  # see below

    return waiting_pages(serving)


def _optional_pages(daemon: Daemon, clock: Clock, *, board: bool, whatif: bool) -> dict[str, Any]:
    """Return the arguments of `serving_pages` for the pages that flags add; few need their imports."""
    shown: dict[str, Any] = {"more": []}
    if board:
        from scheduler.tools.board.pages import board_of, board_pages
        from scheduler.tools.board.sign_in import SignIn
        from scheduler.tools.board.subject import of_daemon

        shown["more"] += board_pages(board_of(of_daemon(daemon, clock)))
        shown["guarding"] = SignIn
    if whatif:
        from scheduler.tools.whatif.service.page import what_if_pages

        shown["more"] += what_if_pages(daemon)
    return shown


async def _origin(
    config: Path | None,
    config_map: ConfigMapKey | None,
    kubeconfig: str | None,
    stack: AsyncExitStack,
    patient: Callable[[ApiConnection], StartupRequests],
) -> _Origin:
    policies: dict[PolicyConfigMap, str] = {}
    if config_map is not None:
        connection = await stack.enter_async_context(connect(kubeconfig))
        try:
            folder = stack.enter_context(TemporaryDirectory(prefix="custom-scheduler-"))
        except OSError as error:
            problem = f"cannot create a folder for its plugin files: {error.strerror or error}"
            raise ConfigurationError([FieldError("--config-map", problem)]) from error
        source = ConfigMapSource(config_map, Path(folder), policies)

        async def read_map() -> Configuration:
            requests = patient(connection)
            first = partial(source.first, await read_config_map(requests, config_map))
            return await with_policies(first, policies, lambda _: nullcontext(requests))

        return _Origin(read_map, config_map.source, config_map=source, connection=connection)
    if config is not None:
        file = ConfigFile(config, policies)

        @asynccontextmanager
        async def connecting(named: str) -> AsyncIterator[Requests]:
            async with connect(kubeconfig or named or None) as connection:
                yield patient(connection)

        async def read_file() -> Configuration:
            return await with_policies(file.load, policies, connecting)

        return _Origin(read_file, str(config), file=file)

    async def read_nothing() -> Configuration:
        return default()

    return _Origin(read_nothing)


async def _begin(
    origin: _Origin, kept: LastGood | None, build: Callable[[Configuration], Awaitable[Daemon]]
) -> tuple[Daemon, Configuration, bytes]:
    """Build the daemon with the given configuration, or else with the last good one.

    Returns:
        The daemon, the configuration as it was read, and its digest.

    Raises:
        ConfigurationError: the configuration is invalid, and there is no usable last good one.
    """
    try:
        read = await origin.read()
        daemon = await build(read)
    except ConfigurationError as error:
        before = None if kept is None else kept.read_if_usable()
        if before is None:
            raise
        read, digest = before
        logger.error(  # noqa: TRY400 - a fault of the configuration
            "Configuration is invalid; using the last good one",
            extra={"source": origin.name, "error": "; ".join(map(str, error.errors))},
        )
        try:
            daemon = await build(read)
        except ConfigurationError:
            raise error from None
        if origin.followed is not None:
            origin.followed.unread()  # it is read again, and rejected with an event
        return daemon, read, digest
    digest = b"" if origin.followed is None else origin.followed.digest
    if kept is not None:
        await in_a_thread(partial(kept.keep, read, digest), "keeping the configuration for a restart")
    return daemon, read, digest


async def _note_attempts(daemon: Daemon, beside: Path, requests: Requests, clock: Clock) -> None:
    """Write the pod of each attempt to a file, and quarantine the pod at which the previous process ended."""
    path = beside.with_name(f"{beside.name}.attempt")
    note: AttemptMarker | None = None
    daemon.metrics.families.read_gauges(
        "custom_scheduler_attempt_note_up",
        "Whether the pod of the running attempt is written to the attempt file; 0 if the file cannot be written.",
        (),
        lambda: [((), float(note is not None and note.is_kept))],
    )
    try:
        note = await in_a_thread(partial(AttemptMarker, path), f"opening {path}")
    except (OSError, TookTooLongError) as error:
        fields = {"file": str(path), "error": str(error)}
        logger.warning("Cannot write the attempt file", extra=fields)
        return
    if note.found is not None:
        await quarantine(note.found, requests, clock)
        note.write(None)
    daemon.cycles.scheduler.at_work = note.write


@asynccontextmanager
async def _following(
    daemon: Daemon,
    reloader: Reloader,
    origin: _Origin | None,
    profiles: Callable[..., AbstractAsyncContextManager[None]] | None,
    *,
    connection: ApiConnection,
    kubeconfig: str | None,
) -> AsyncIterator[None]:
    """Follow the configuration at its source, and SchedulerProfile objects, as far as either is enabled."""
    file = None if origin is None else origin.file
    config_map = None if origin is None else origin.config_map
    async with AsyncExitStack() as stack:
        if file is not None:
            await stack.enter_async_context(following_file(daemon, reloader, file))
        if config_map is not None or profiles is not None:
            # The import takes a second of CPU, which may be minutes on a busy machine. Nothing else can be done meanwhile.
            await in_a_thread(partial(import_module, "kopf"), "importing kopf", gives_up=False)
            from scheduler.daemon.config_watch.kopf_thread import KopfThread

            named = daemon.configuration.settings.client_connection.kubeconfig
            thread = KopfThread(kubeconfig or (None if config_map is not None else named or None))
            if config_map is not None:
                await stack.enter_async_context(
                    following_config_map(daemon, reloader, config_map, connection=connection, thread=thread)
                )
            if profiles is not None:
                await stack.enter_async_context(profiles(connection=connection, thread=thread))
            await stack.enter_async_context(thread)
        yield


def _tell_notes(configuration: Configuration) -> None:
    log_notes(configuration)
    if configuration.api_version != API_VERSION:
        logger.info(
            "Configuration has an old apiVersion; `custom-scheduler check --convert` converts it",
            extra={"api_version": configuration.api_version},
        )


def _recording(
    room: RecordingLimits | None, clock: Clock, max_in_unschedulable_seconds: float
) -> Recording | None:
    """Begin to record, if requested.

    Raises:
        ConfigurationError: the folder cannot be written.
    """
    if room is None:
        return None
    from scheduler.daemon.recording.recording import Recording  # few record

    try:
        return Recording(
            room, clock, random.Random(), max_in_unschedulable_seconds=max_in_unschedulable_seconds
        )
    except OSError as error:
        raise ConfigurationError([FieldError("--record", f"{room.folder}: {error}")]) from error


async def _run(
    config: Path | None,
    config_map: ConfigMapKey | None,
    overriding: Callable[[Configuration], Configuration],
    *,
    features: GivenFeatures,
    kubeconfig: str | None,
    serving: Serving,
    board: bool,
    whatif: bool,
    write_config_to: Path | None,
    last_good: Path | None,
    follow: bool,
    scheduler_profiles: bool,
    max_in_unschedulable_seconds: float,
    no_bind: bool,
    may_replace: bool,
    record: RecordingLimits | None,
) -> None:
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        patient = partial(StartupRequests, stop=stop, meanwhile=partial(_showing_that_it_waits, serving))
        origin = await _origin(config, config_map, kubeconfig, stack, patient)
        if write_config_to is not None:
            _write(overriding(with_features(await origin.read(), features)), write_config_to)
            return
        clock = SystemClock()
        connection = origin.connection
        recording = _recording(record, clock, max_in_unschedulable_seconds)
        versions = ServerVersions(features)

        async def settle(read: Configuration, requests: Requests) -> Configuration:
            settled = overriding(await versions.settled(read, requests))
            if not may_replace:
                await refuse_beside_default_scheduler(requests, settled)
            return settled

        async def build(read: Configuration) -> Daemon:
            nonlocal connection
            if connection is None:
                named = kubeconfig or read.settings.client_connection.kubeconfig or None
                connection = await stack.enter_async_context(connect(named))
            settled = await settle(read, patient(connection))
            await dry_run_plugins(settled)
            return Daemon(
                connection,
                settled,
                clock=clock,
                random=random.Random(),
                no_bind=no_bind,
                aside=in_a_thread,
                max_in_unschedulable_seconds=max_in_unschedulable_seconds,
                ports=None if recording is None else recording.recorder,
            )

        kept = LastGood(last_good, origin.name) if last_good is not None and origin.name else None
        daemon, read, digest = await _begin(origin, kept, build)
        configuration = daemon.configuration
        assert connection is not None
        versions.show(daemon.metrics, lambda: daemon.configuration)
        _tell_notes(configuration)
        if last_good is not None and not no_bind:
            await _note_attempts(daemon, last_good, patient(connection), clock)
        if recording is not None:
            await stack.enter_async_context(recording.of(daemon))
        daemon.parts.budget.take_clock()
        stack.callback(daemon.parts.budget.give_clock_back)
        call_on_signal(signal.SIGUSR2, daemon.consistency.ask)  # like kube-scheduler's cache debugger
        await stack.enter_async_context(watching_loop(daemon.metrics.loop))
        if serving.secure_port or serving.http_port:
            from scheduler.daemon.app.pages import (
                serving_pages,  # an HTTP server takes half as long as all the rest
            )

            shown = _optional_pages(daemon, clock, board=board, whatif=whatif)
            await stack.enter_async_context(
                serving_pages(
                    daemon, configuration, serving, connection=connection, stop=stop, clock=clock, **shown
                )
            )
        statuses = ProfileStatusWriter(daemon.writer, is_leading=daemon.leadership.assigns)
        profiles = ClusterProfiles(
            daemon, recorder=daemon.recorder(CONTROLLER), try_out=dry_run_plugins, on_change=statuses.look
        )
        reloader = Reloader(
            daemon,
            settle=partial(settle, requests=StartupRequests(connection, stop)),
            clock=clock,
            try_out=dry_run_plugins,
            keep=None if kept is None else kept.keep,
            put=profiles.put,
        )
        about = lease_of(configuration.settings.leader_election)
        reloader.started_with(Offer(origin.name or "the defaults", about, digest, outcome(read)))
        await stack.enter_async_context(following_server(daemon, reloader, versions, connection))
        await stack.enter_async_context(
            _following(
                daemon,
                reloader,
                origin if follow else None,
                partial(following_profiles, daemon, profiles, statuses) if scheduler_profiles else None,
                connection=connection,
                kubeconfig=kubeconfig,
            )
        )
        await daemon.run(stop)
    logger.info("Stopped")
