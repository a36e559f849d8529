"""`custom-scheduler extender`: serves this scheduler's plugins as an HTTP extender of another scheduler."""

from __future__ import annotations

import logging
import random
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from scheduler.cli.options import command, features_options, file_option, option, port_option
from scheduler.cli.process import kubeconfig_option, logging_format_option, run_in_loop, stop_on_signals
from scheduler.cli.run_flags import tls_cert_file, tls_private_key_file
from scheduler.clock import SystemClock
from scheduler.configuration.load import default, load
from scheduler.configuration.overrides import with_features
from scheduler.daemon.app.extender.certificates import ServingCertificate
from scheduler.daemon.app.extender.pages import ExtenderAddress, serving_extender
from scheduler.daemon.app.extender.service import ExtenderService, checked_profile, judging
from scheduler.daemon.app.extender.snippet import points_not_run, snippet
from scheduler.daemon.app.loop_watch import watching_loop
from scheduler.daemon.app.memory import settle_memory
from scheduler.daemon.app.plugin_dry_run import dry_run_plugins
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.daemon.logs import configure_logging, level_of
from scheduler.daemon.server import Serving
from scheduler.kube.client.connect import connect
from scheduler.kube.client.requests import StartupRequests
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.daemon.logs import LogFormat

logger = logging.getLogger(__name__)

_SECTION = "Answering kube-scheduler"


@command()
@file_option(
    "--config",
    help="KubeSchedulerConfiguration file with the profiles to use; without it, the default plugins.",
)
@features_options
@option(
    "--profile",
    default="",
    help="schedulerName of the profile for all pods; without it the only profile or, if there are several, the profile of "
    "the pod's own schedulerName.",
    metavar="NAME",
)
@kubeconfig_option
@option(
    "--snippet",
    "snippet_only",
    is_flag=True,
    help="Print the extender entry for kube-scheduler's configuration, and exit.",
)
@option(
    "--bind",
    is_flag=True,
    help="Also bind pods, after a final check by the same plugins. Any accepted client can have pods bound, so this "
    "cannot be combined with --allow-anybody.",
)
@option(
    "--url",
    default="",
    help="URL at which kube-scheduler reaches this process, for the snippet and for a self-signed certificate; without "
    "it, this machine.",
    metavar="URL",
    section=_SECTION,
)
@option(
    "--bind-address",
    default="127.0.0.1",
    help="Address to listen on; 0.0.0.0 and :: for all addresses.",
    metavar="ADDRESS",
    section=_SECTION,
)
@port_option("--secure-port", default=8443, help="Port of HTTPS; 0 for none.", section=_SECTION)
@port_option(
    "--http-port",
    default=0,
    help="Port of plain HTTP, for health and metrics, and with --allow-anybody for all requests. 0 for none.",
    section=_SECTION,
)
@tls_cert_file
@tls_private_key_file
@file_option("--tls-ca-file", help="CA of --tls-cert-file, PEM, for the snippet.", section=_SECTION)
@file_option(
    "--cert-dir",
    help="Folder that keeps the generated server certificate (tls.crt, tls.key, ca.crt) for the next start; without it, "
    "each start generates another, which kube-scheduler then needs to know. Also keeps the generated client certificate "
    "(client.crt, client.key, with the CA clients.crt), unless one of the next three flags says which clients are "
    "accepted.",
    metavar="DIR",
    section=_SECTION,
)
@file_option(
    "--client-ca-file",
    help="CA of the clients, PEM: a client with a certificate of this CA is accepted. Do not use the cluster's own CA, "
    "which signs the certificate of every kubelet.",
    section=_SECTION,
)
@file_option(
    "--token-file",
    help="File with a bearer token: a client with this token is accepted. kube-scheduler sends only certificates.",
    section=_SECTION,
)
@option(
    "--allow-anybody",
    is_flag=True,
    help="Accept every client. Clients can learn what is on the nodes.",
    section=_SECTION,
)
@option("--v", "-v", default=0, help="Log level: 0 for few messages, 2 for many.", metavar="N")
@logging_format_option
def extender(
    config: Path | None,
    features: GivenFeatures,
    profile: str,
    kubeconfig: Path | None,
    snippet_only: bool,
    bind: bool,
    url: str,
    bind_address: str,
    secure_port: int,
    http_port: int,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    tls_ca_file: Path | None,
    cert_dir: Path | None,
    client_ca_file: Path | None,
    token_file: Path | None,
    allow_anybody: bool,
    v: int,
    logging_format: LogFormat | None,
) -> None:
    """Serve the plugins of a profile as an extender of a kube-scheduler.

    Prints the extender entry for kube-scheduler's configuration on standard output.
    """
    configure_logging(level_of(v), logging_format)
    settle_memory()
    where = ExtenderAddress(
        host=bind_address,
        secure_port=secure_port,
        http_port=http_port,
        url=url,
        key_pair=Serving(
            bind_address, 0, tls_cert_file=tls_cert_file, tls_private_key_file=tls_private_key_file
        ).key_pair,
        authority=tls_ca_file,
        folder=cert_dir,
        client_authority=client_ca_file,
        token_file=token_file,
        answers_anybody=allow_anybody,
        binds=bind,
    )
    where.check()
    configuration = default() if config is None else load(config, version=None)
    if snippet_only:
        _print_snippet(with_features(configuration, features), profile, where)
        return
    versions = ServerVersions(features)
    run_in_loop(_run(configuration, versions, profile, str(kubeconfig) if kubeconfig else None, where))


def _print_snippet(configuration: Configuration, profile: str, where: ExtenderAddress) -> None:
    """Print the snippet without a cluster."""
    frameworks = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks
    judges = judging(checked_profile(profile, frameworks), frameworks)
    # A certificate that is generated for this run only would be of no use in a snippet.
    is_lasting = where.key_pair is not None or where.folder is not None
    certificate = where.certificate() if is_lasting else ServingCertificate()
    where.callers()
    sys.stdout.write(snippet(judges, where, certificate.authority))


async def _run(
    configuration: Configuration,
    versions: ServerVersions,
    profile: str,
    kubeconfig: str | None,
    where: ExtenderAddress,
) -> None:
    stop = stop_on_signals()
    kubeconfig = kubeconfig or configuration.settings.client_connection.kubeconfig or None
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect(kubeconfig))
        configuration = await versions.settled(configuration, StartupRequests(connection, stop))
        await dry_run_plugins(configuration)
        service = ExtenderService(
            connection, configuration, profile=profile, clock=SystemClock(), random=random.Random()
        )
        versions.show(service.metrics, lambda: service.configuration)
        service.parts.budget.take_clock()
        stack.callback(service.parts.budget.give_clock_back)
        await stack.enter_async_context(watching_loop(service.metrics.loop))
        certificate = where.certificate()
        _tell(service, where, certificate)
        await stack.enter_async_context(service.running())
        # Closed first: running requests are answered while the cluster is still watched.
        await stack.enter_async_context(serving_extender(service, where, certificate, stop=stop))
        await stop.wait()
    logger.info("Stopped")


def _tell(service: ExtenderService, where: ExtenderAddress, certificate: ServingCertificate) -> None:
    """Print the snippet, and log which parts of the profiles the other scheduler does not use."""
    sys.stdout.write(snippet(service.judging, where, certificate.authority))
    sys.stdout.flush()
    for point, plugins in points_not_run(service.judging, binds=where.binds).items():
        logger.warning(
            "The other scheduler does not call plugins at this extension point",
            extra={"point": point, "plugins": plugins},
        )
    if service.configuration.settings.extenders:
        logger.warning("Extenders of the configuration are not called: kube-scheduler has to call them")
    if where.answers_anybody:
        logger.warning("Every client is accepted; --client-ca-file or --cert-dir restricts access")
