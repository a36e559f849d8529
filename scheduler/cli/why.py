"""`custom-scheduler why`, or `kubectl why`: why a pod waits, or would, in the cluster that kubectl talks to."""

from __future__ import annotations

import logging
import os
from enum import Enum
from pathlib import Path
from typing import Final

import click

from scheduler.app.rights import Named
from scheduler.cli.feature_gates import feature_gates_option
from scheduler.cli.options import choice_option, command, file_option, option
from scheduler.cli.process import run_in_loop
from scheduler.logs import LogFormat, configure_logging

_LEASE: Final = "kube-system/custom-scheduler"
_OF_THE_DAEMON: Final = "The daemon that is asked"
_POD_WORDS: Final = frozenset({"pod", "pods", "po"})


class Output(Enum):
    """How answers are written."""

    TABLE = "table"
    JSON = "json"


def _lease(text: str) -> Named:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name and "/" not in name):
        raise click.BadParameter(f"NAMESPACE/NAME is expected, was {text!r}")
    return Named(namespace, name)


@command()
@click.argument("pod", required=False, metavar="[POD]")
@option(
    "--group",
    help="Say why this group of pods waits, a PodGroup of any kind; of a POD in a group it is told how its group fares.",
    metavar="NAME",
)
@option("--pending", is_flag=True, help="List all pods that wait, of every scheduler, by cause.")
@option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    help="Say how many of the pods of what is not created yet would start now, where, and at whose cost; - is standard "
    "input.",
    metavar="FILE",
)
@option(
    "--replicas",
    type=click.IntRange(1),
    help="With -f: so many pods of each object, whatever it says.",
    metavar="N",
)
@option("--node", help="Show this node's verdict or scores, beside those of the node chosen.", metavar="NAME")
@option("--watch", "-w", is_flag=True, help="Go on until the pod is on a node, and tell whatever is new.")
@choice_option(Output, "--output", "-o", default=Output.TABLE, help="For people or for programs.")
@option("--all-nodes", is_flag=True, help="Name every node in tables, however many there are.")
@file_option(
    "--config",
    help="Decide with the profiles of this KubeSchedulerConfiguration where no daemon is asked; without it, with "
    "kube-scheduler's default plugins.",
)
@feature_gates_option
@option("--offline", is_flag=True, help="Ask no daemon: decide here.")
@option(
    "--kubeconfig",
    help="How to reach the API server; without it, $KUBECONFIG and ~/.kube/config, as kubectl.",
    metavar="FILE",
    section="The cluster, as of kubectl",
)
@option(
    "--context",
    help="Of the kubeconfig; without it, the current one.",
    metavar="NAME",
    section="The cluster, as of kubectl",
)
@option(
    "--namespace",
    "-n",
    help="Of the pod, or of what names none in a file; without it, the context's. With --pending, only of this one.",
    metavar="NAME",
    section="The cluster, as of kubectl",
)
@option(
    "--lease",
    type=_lease,
    default=_LEASE,
    help="Held by the daemon that leads.",
    metavar="NAMESPACE/NAME",
    section=_OF_THE_DAEMON,
)
@option(
    "--server",
    help="Where its pages are, instead of behind a forwarded port.",
    metavar="URL",
    section=_OF_THE_DAEMON,
)
@file_option(
    "--token-file",
    help="Shown to it as bearer token, instead of one of the ServiceAccount custom-scheduler-why.",
    section=_OF_THE_DAEMON,
)
def why(
    pod: str | None,
    group: str | None,
    pending: bool,
    filenames: tuple[str, ...],
    replicas: int | None,
    node: str | None,
    watch: bool,
    output: Output,
    all_nodes: bool,
    config: Path | None,
    feature_gates: dict[str, bool],
    offline: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    lease: Named,
    server: str | None,
    token_file: Path | None,
) -> None:
    """Say why a pod waits and which nodes could run it, in the cluster that kubectl talks to.

    The daemon that leads is asked for its last attempt. Where none answers, and of pods of other schedulers, it is
    decided here, from what the API server lists now.
    """
    if sum((pod is not None, group is not None, pending, bool(filenames))) != 1:
        raise click.UsageError("one of POD, --group, --pending and -f FILE is needed")
    for flag, is_given, wanted in (
        ("--replicas", replicas is not None, bool(filenames)),
        ("--node", node is not None, pod is not None),
        ("--watch", watch, pod is not None),
    ):
        if is_given and not wanted:
            raise click.UsageError(f"{flag} is not for this: see --help")
    configure_logging(logging.WARNING, LogFormat.TEXT)
    from scheduler.cli.why_look import Look  # what judges takes a while to import, and --help none of it

    look = Look(
        kubeconfig or _usual_kubeconfig(),
        context or "",
        namespace,
        config,
        feature_gates,
        as_json=output is Output.JSON,
        all_nodes=all_nodes,
    )
    if pending:
        from scheduler.cli.why_pending import look_at_pending

        run_in_loop(look_at_pending(look))
    elif filenames:
        from scheduler.cli.why_files import look_at_files

        run_in_loop(look_at_files(look, filenames, replicas))
    elif group is not None:
        from scheduler.cli.why_group import look_at_group
        from scheduler.cli.why_pod import Ask

        ask = None if offline else Ask(lease, server, token_file)
        run_in_loop(look_at_group(look, group, ask))
    else:
        from scheduler.cli.why_pod import Ask, look_at_pod

        assert pod is not None
        ask = None if offline else Ask(lease, server, token_file)
        run_in_loop(look_at_pod(look, _pod_name(pod), ask, node=node, watch=watch))


def _pod_name(text: str) -> str:
    """Read NAME, pod/NAME or NAMESPACE/NAME; the namespace stays before the name."""
    first, slash, rest = text.partition("/")
    return rest if slash and first in _POD_WORDS else text


def _usual_kubeconfig() -> str | None:
    """Return the file that kubectl would read; None where $KUBECONFIG names others, and for a pod's ServiceAccount."""
    usual = Path.home() / ".kube" / "config"
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not usual.exists()
    return None if in_a_pod or os.environ.get("KUBECONFIG") else str(usual)
