"""`custom-scheduler extender`: our plugins behind another scheduler."""

from __future__ import annotations

import logging
import random
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from scheduler.app.extender.certificates import ServingCertificate
from scheduler.app.extender.pages import ExtenderAddress, serving_extender
from scheduler.app.extender.service import ExtenderService, checked_profile, judging
from scheduler.app.extender.snippet import points_not_run, snippet
from scheduler.app.loop_watch import watching_loop
from scheduler.app.memory import settle_memory
from scheduler.app.serving import Serving
from scheduler.app.trial import try_out
from scheduler.cli.feature_gates import feature_gates_option
from scheduler.cli.options import command, file_option, option, port_option
from scheduler.cli.process import kubeconfig_option, logging_format_option, run_in_loop, stop_on_signals
from scheduler.cli.serving import tls_cert_file, tls_private_key_file
from scheduler.client.connect import connect
from scheduler.clock import SystemClock
from scheduler.configuration.load import default, load
from scheduler.configuration.overrides import with_feature_gates
from scheduler.logs import configure_logging, level_of
from scheduler.whatif.cluster_file import ClusterFile
from scheduler.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.logs import LogFormat

logger = logging.getLogger(__name__)

_SECTION = "Answering kube-scheduler"


@command()
@file_option(
    "--config",
    help="KubeSchedulerConfiguration file, whose profiles judge; without it, the default plugins.",
)
@feature_gates_option
@option(
    "--profile",
    default="",
    help="schedulerName of the profile that judges all pods; without it the only one, or, of several, that of the pod's "
    "own schedulerName.",
    metavar="NAME",
)
@kubeconfig_option
@option(
    "--snippet",
    "snippet_only",
    is_flag=True,
    help="Print what kube-scheduler's configuration needs, and end.",
)
@option(
    "--bind",
    is_flag=True,
    help="Bind pods as well, after a last look by the same plugins; whoever is answered can have pods bound, so it "
    "does not go with --allow-anybody.",
)
@option(
    "--url",
    default="",
    help="How kube-scheduler reaches this, for the snippet and for a certificate that is made; without it, on this "
    "machine.",
    metavar="URL",
    section=_SECTION,
)
@option(
    "--bind-address",
    default="127.0.0.1",
    help="Address to listen on: that of this machine alone unless told otherwise; 0.0.0.0 and :: are all there are.",
    metavar="ADDRESS",
    section=_SECTION,
)
@port_option("--secure-port", default=8443, help="Port of HTTPS; 0 for none.", section=_SECTION)
@port_option(
    "--http-port",
    default=0,
    help="Port of plain HTTP: of health and metrics, and with --allow-anybody of all. 0 for none.",
    section=_SECTION,
)
@tls_cert_file
@tls_private_key_file
@file_option("--tls-ca-file", help="Who vouches for --tls-cert-file, PEM, for the snippet.", section=_SECTION)
@file_option(
    "--cert-dir",
    help="Where a certificate that is made is kept (tls.crt, tls.key, ca.crt) and found again; without it each start "
    "makes another, which kube-scheduler has to be told. So is the one that kube-scheduler has to show (client.crt, "
    "client.key; clients.crt vouches for it), unless one of the next three says who is answered.",
    metavar="DIR",
    section=_SECTION,
)
@file_option(
    "--client-ca-file",
    help="Who vouches for schedulers, PEM: who shows a certificate of theirs is answered. Not the cluster's own, which "
    "vouches for every kubelet.",
    section=_SECTION,
)
@file_option(
    "--token-file",
    help="A bearer token: who brings it is answered. kube-scheduler shows certificates only.",
    section=_SECTION,
)
@option(
    "--allow-anybody",
    is_flag=True,
    help="Answer whoever comes, and let him learn what is on the nodes.",
    section=_SECTION,
)
@option("--v", "-v", default=0, help="How much is logged: 0 little, 2 much.", metavar="N")
@logging_format_option
def extender(
    config: Path | None,
    feature_gates: dict[str, bool],
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
    """Answer a kube-scheduler, whose extender this is, with the plugins of a profile.

    Prints what kube-scheduler's configuration needs for it on standard output.
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
    configuration = with_feature_gates(default() if config is None else load(config), feature_gates)
    if snippet_only:
        _print_snippet(configuration, profile, where)
        return
    run_in_loop(_run(configuration, profile, str(kubeconfig) if kubeconfig else None, where))


def _print_snippet(configuration: Configuration, profile: str, where: ExtenderAddress) -> None:
    """Print the snippet without a cluster."""
    frameworks = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks
    judges = judging(checked_profile(profile, frameworks), frameworks)
    # One that is made for this run only would vouch for nobody.
    is_lasting = where.key_pair is not None or where.folder is not None
    certificate = where.certificate() if is_lasting else ServingCertificate()
    where.callers()
    sys.stdout.write(snippet(judges, where, certificate.authority))


async def _run(
    configuration: Configuration, profile: str, kubeconfig: str | None, where: ExtenderAddress
) -> None:
    stop = stop_on_signals()
    kubeconfig = kubeconfig or configuration.settings.client_connection.kubeconfig or None
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect(kubeconfig))
        await try_out(configuration)
        service = ExtenderService(
            connection, configuration, profile=profile, clock=SystemClock(), random=random.Random()
        )
        service.parts.budget.take_clock()
        stack.callback(service.parts.budget.give_clock_back)
        await stack.enter_async_context(watching_loop(service.metrics.loop))
        certificate = where.certificate()
        _tell(service, where, certificate)
        await stack.enter_async_context(service.running())
        # Closed first: what is being answered is finished while the cluster is still watched.
        await stack.enter_async_context(serving_extender(service, where, certificate, stop=stop))
        await stop.wait()
    logger.info("Stopped")


def _tell(service: ExtenderService, where: ExtenderAddress, certificate: ServingCertificate) -> None:
    """Print the snippet, and say what of the profiles nobody will ask for."""
    sys.stdout.write(snippet(service.judging, where, certificate.authority))
    sys.stdout.flush()
    for point, plugins in points_not_run(service.judging, binds=where.binds).items():
        logger.warning(
            "Plugins are not asked at this point by another scheduler",
            extra={"point": point, "plugins": plugins},
        )
    if service.configuration.settings.extenders:
        logger.warning("Extenders of the configuration are not asked: they are for kube-scheduler to ask")
    if where.answers_anybody:
        logger.warning("Whoever reaches this is answered; --client-ca-file or --cert-dir keeps others out")
