"""`custom-scheduler why` and `kubectl why`: explain why a pod waits in the current cluster of kubectl."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from scheduler.cli.options import Output, command, features_options, file_option, option, output_option
from scheduler.cli.process import context_option, run_in_loop
from scheduler.daemon.app.rights import Named
from scheduler.daemon.logs import LogFormat, configure_logging

if TYPE_CHECKING:
    from scheduler.configuration.overrides import GivenFeatures

_LEASE: Final = "kube-system/custom-scheduler"
_OF_THE_DAEMON: Final = "The daemon"
_POD_WORDS: Final = frozenset({"pod", "pods", "po"})


def _lease(text: str) -> Named:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name and "/" not in name):
        raise click.BadParameter(f"NAMESPACE/NAME is expected, was {text!r}")
    return Named(namespace, name)


@command()
@click.argument("pod", required=False, metavar="[POD]")
@option(
    "--group",
    help="Explain why this group waits (a PodGroup of any kind). For a POD of a group, the state of its group is always "
    "shown.",
    metavar="NAME",
)
@option(
    "--pending",
    is_flag=True,
    help="List all pending pods of every scheduler, by cause, with a verdict for each cause.",
)
@option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    help="Show how many pods of objects that are not created yet would start now, on which nodes, and which pods would be "
    "evicted; - is standard input.",
    metavar="FILE",
)
@option(
    "--replicas",
    type=click.IntRange(1),
    help="With -f: number of pods of each object, instead of its own.",
    metavar="N",
)
@option(
    "--remove-node",
    "removed",
    multiple=True,
    help="Without this node: show where its pods would go, which of them would be pending, and which PodDisruptionBudgets "
    "refuse their eviction. LABEL=VALUE names all nodes with a label. May be given several times, and with -f.",
    metavar="NODE",
)
@option(
    "--add-nodes",
    "added",
    help="With -f or --remove-node: show how many more nodes are needed, up to this number. They are copies of a NODE, of the "
    "first node with LABEL=VALUE, or of a Node in the files.",
    metavar="NUMBER[:NODE]",
)
@option(
    "--node", help="Show the result and scores of this node, beside those of the chosen node.", metavar="NAME"
)
@option("--watch", "-w", is_flag=True, help="Watch until the pod is on a node, and print each change.")
@output_option()
@option("--all-nodes", is_flag=True, help="Show every node in tables.")
@file_option(
    "--config",
    help="Use the profiles of this KubeSchedulerConfiguration where no daemon is asked; without it, kube-scheduler's "
    "default plugins.",
)
@features_options
@option("--offline", is_flag=True, help="Do not ask a daemon; evaluate in this process.")
@option(
    "--kubeconfig",
    help="Kubeconfig of the API server; without it, $KUBECONFIG and ~/.kube/config, like kubectl.",
    metavar="FILE",
    section="The cluster, as for kubectl",
)
@context_option(section="The cluster, as for kubectl")
@option(
    "--namespace",
    "-n",
    help="Namespace of the pod, or of objects in a file that name none; without it, the context's. With --pending, list "
    "only this one.",
    metavar="NAME",
    section="The cluster, as for kubectl",
)
@option(
    "--lease",
    type=_lease,
    default=_LEASE,
    help="Lease of the daemon, whose holder is asked.",
    metavar="NAMESPACE/NAME",
    section=_OF_THE_DAEMON,
)
@option(
    "--server",
    help="URL of the daemon's HTTP endpoints, instead of a forwarded port.",
    metavar="URL",
    section=_OF_THE_DAEMON,
)
@file_option(
    "--token-file",
    help="File with the bearer token, instead of a token of the ServiceAccount custom-scheduler-why.",
    section=_OF_THE_DAEMON,
)
def why(
    pod: str | None,
    group: str | None,
    pending: bool,
    filenames: tuple[str, ...],
    replicas: int | None,
    removed: tuple[str, ...],
    added: str | None,
    node: str | None,
    watch: bool,
    output: Output,
    all_nodes: bool,
    config: Path | None,
    features: GivenFeatures,
    offline: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    lease: Named,
    server: str | None,
    token_file: Path | None,
) -> None:
    """Explain why a pod waits and which nodes fit, in the current cluster of kubectl.

    The leading daemon is asked for its last attempt. If no daemon answers, and for pods of other schedulers, this
    process evaluates the pod in the current state of the cluster.
    """
    if sum((pod is not None, group is not None, pending, bool(filenames or removed))) != 1:
        raise click.UsageError("one of POD, --group, --pending, -f FILE and --remove-node is needed")
    for flag, is_given, wanted in (
        ("--replicas", replicas is not None, bool(filenames)),
        ("--add-nodes", added is not None, bool(filenames or removed)),
        ("--node", node is not None, pod is not None),
        ("--watch", watch, pod is not None),
    ):
        if is_given and not wanted:
            raise click.UsageError(f"{flag} has no effect here: see --help")
    configure_logging(logging.WARNING, LogFormat.TEXT)
    from scheduler.cli.why_current import Lookup  # what judges takes a while to import, and --help none of it

    look = Lookup(
        kubeconfig or _usual_kubeconfig(),
        context or "",
        namespace,
        config,
        features,
        as_json=output is Output.JSON,
        all_nodes=all_nodes,
    )
    if pending:
        from scheduler.cli.why_current import Ask, look_at_pending

        run_in_loop(look_at_pending(look, None if offline else Ask(lease, server, token_file)))
    elif filenames or removed:
        from scheduler.cli.why_current import Ask
        from scheduler.cli.why_planned import Change, look_at_change

        ask = None if offline else Ask(lease, server, token_file)
        run_in_loop(look_at_change(look, Change(filenames, replicas, removed, added), ask))
    elif group is not None:
        from scheduler.cli.why_current import Ask, look_at_group

        ask = None if offline else Ask(lease, server, token_file)
        run_in_loop(look_at_group(look, group, ask))
    else:
        from scheduler.cli.why_current import Ask, look_at_pod

        assert pod is not None
        ask = None if offline else Ask(lease, server, token_file)
        run_in_loop(look_at_pod(look, _pod_name(pod), ask, node=node, watch=watch))


def _pod_name(text: str) -> str:
    """Read NAME, pod/NAME or NAMESPACE/NAME; a namespace stays in the result."""
    first, slash, rest = text.partition("/")
    return rest if slash and first in _POD_WORDS else text


def _usual_kubeconfig() -> str | None:
    """Return kubectl's default file; None if $KUBECONFIG names others, or to use a pod's ServiceAccount."""
    usual = Path.home() / ".kube" / "config"
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not usual.exists()
    return None if in_a_pod or os.environ.get("KUBECONFIG") else str(usual)
