"""`custom-scheduler explain`: decisions, with reasons, for the pending pods of a cluster in a file."""

from __future__ import annotations

import gc
import logging
import math
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scheduler.cli.options import Output, command, fail, file_option, option, output_option, profiles_options
from scheduler.daemon.app.loop_watch import watching_plugins
from scheduler.engine.cycle.explanation import NODES_OF_A_KIND
from scheduler.errors import ObjectError
from scheduler.tools.whatif import cluster_file, watch_event
from scheduler.tools.whatif.cluster_file import STANDARD_INPUT, ClusterFile, ClusterFileError
from scheduler.tools.whatif.evaluation import (
    evaluate_each,
    evaluate_in_sequence,
    is_pending,
    pods_to_evaluate,
)
from scheduler.tools.whatif.group_evaluation import GroupEvaluator
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.requeue_preview import with_wakes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from scheduler.cli.options import GivenProfiles
    from scheduler.configuration.load import Configuration
    from scheduler.objects.pod import PodInfo


@command()
@option(
    "--cluster",
    help="Nodes, pods and other objects, as `kubectl get ... -o json` or YAML; - is standard input.",
    metavar="FILE",
)
@option(
    "--server",
    help="Ask a running daemon about --pod or --group instead: the last attempt, and the history in the queue.",
    metavar="URL",
)
@file_option("--token-file", help="With --server: file with the bearer token.")
@option("--insecure-skip-tls-verify", is_flag=True, help="With --server: accept any certificate.")
@profiles_options
@option(
    "--pod",
    help="Show only this pod; NAME alone is in the namespace default. For a pod on a node: where it would go now.",
    metavar="NS/NAME",
)
@option(
    "--group",
    help="Show only this group (a PodGroup of any kind): its members that fit and that do not, by domain of its topology "
    "constraint, the pods that would be evicted, and its state in the queue. For a --pod of a group, the state of its "
    "group is always shown.",
    metavar="NS/NAME",
)
@option(
    "--sequence",
    is_flag=True,
    help="Place the pods one after another, by priority and then in the order of the file, instead of each alone in "
    "the cluster as it is.",
)
@option(
    "--event",
    help="One watch event as JSON or YAML: type, object and, for MODIFIED, oldObject; - is standard input. Also show for "
    "every pending pod whether this event would requeue it.",
    metavar="FILE",
)
@output_option()
@option(
    "--all-nodes",
    is_flag=True,
    help="Show every node in tables; with --cluster, also show the details of each node.",
)
def explain(
    cluster: str | None,
    server: str | None,
    token_file: Path | None,
    insecure_skip_tls_verify: bool,
    profiles: GivenProfiles,
    pod: str | None,
    group: str | None,
    sequence: bool,
    event: str | None,
    output: Output,
    all_nodes: bool,
) -> None:
    """Explain for every pending pod which nodes fit, how they rank, and why the others do not fit."""
    if (cluster is None) == (server is None):
        fail("exactly one of --cluster FILE and --server URL is needed")
    _check_event(event, cluster)
    of_file = {
        "--config": profiles.config,
        "--scheduler-name": profiles.scheduler_name,
        "--emulated-version": profiles.features.version,
        "--feature-gates": profiles.features.gates,
        "--sequence": sequence,
    }
    _check_in_vain(
        of_file if server is not None else {}, "needs --cluster: a daemon uses its own configuration"
    )
    of_daemon = {"--token-file": token_file, "--insecure-skip-tls-verify": insecure_skip_tls_verify}
    _check_in_vain(of_daemon if server is None else {}, "needs --server")
    _check_group(group, is_alone=pod is None and not sequence and event is None)
    if server is not None:
        _explain_live(server, pod, group, token_file, insecure_skip_tls_verify, output, all_nodes=all_nodes)
        return
    assert cluster is not None
    logging.basicConfig(level=logging.WARNING, handlers=[_StartedWhenNeeded()])
    configuration = profiles.configuration()
    context = click.get_current_context()
    context.with_resource(watching_plugins())
    gc.disable()  # the objects stay until the process ends: collecting garbage takes a third of the time
    try:
        given = cluster_file.load(cluster)
        wanted = (
            None if pod is None else _key_of_judged(pod, given, configuration, alone=not (sequence or event))
        )
        scheduler = OfflineScheduler(
            given,
            configuration,
            nodes_of_a_kind=math.inf if all_nodes else NODES_OF_A_KIND,
            stops_plugins=True,
        )
        context.call_on_close(scheduler.parts.budget.give_clock_back)
        happening = None if event is None else watch_event.load(event, given, kinds=scheduler.needs.kinds)
    except (ClusterFileError, ObjectError) as error:
        fail(str(error))
    gc.freeze()
    gc.enable()
    if group is not None:
        _refuse_group_of_others(given, configuration, _key(group))
        _show_groups(_judged_groups(scheduler, _key(group)), output, all_nodes=all_nodes)
        return
    pods = pods_to_evaluate(scheduler, given.pods)
    if wanted is not None and not sequence:
        pods = [each for each in given.pods if each.key == wanted]
    if not pods:
        _say_whose_pods_there_are(given, configuration)
    judged = evaluate_in_sequence(scheduler, pods) if sequence else evaluate_each(scheduler, pods)
    explanations = with_wakes(scheduler, judged, happening)
    shown = (each for each in explanations if wanted is None or each["pod"] == wanted)
    if output is Output.JSON:
        _write_json(shown)
    else:
        _write_tables(shown, all_nodes=all_nodes)


def _explain_live(
    server: str,
    pod: str | None,
    group: str | None,
    token_file: Path | None,
    skip_tls_verify: bool,
    output: Output,
    *,
    all_nodes: bool,
) -> None:
    """Show a daemon's answer about a pod or a group."""
    if pod is None and group is None:
        fail("--server needs --pod NS/NAME or --group NS/NAME")
    from scheduler.cli.explain_live import ask, show_live  # HTTP and TLS take a while to import

    keys = (None if name is None else _key(name) for name in (pod, group))
    answer = ask(server, *keys, token_file=token_file, skip_tls_verify=skip_tls_verify)
    if group is not None:
        _show_groups(answer["groups"], output, all_nodes=all_nodes)
    else:
        show_live(answer, as_json=output is Output.JSON, all_nodes=all_nodes)


def _key(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def _judged_groups(scheduler: OfflineScheduler, key: str) -> list[dict[str, Any]]:
    """Return the explanation of each group of that name; exit with a message if there is none."""
    judge = GroupEvaluator(scheduler)
    found = judge.named(key)
    if not found:
        kinds = sorted({kind for framework in scheduler.frameworks.values() for kind in framework.groups})
        fail(
            f"group {key} is not in the file: there is no pod of it and no object"
            f" ({', '.join(kinds) or 'no profile schedules groups'})"
        )
    return [judge.judge(each).explanation for each in found]


def _show_groups(explanations: list[dict[str, Any]], output: Output, *, all_nodes: bool) -> None:
    if output is Output.JSON:
        _write_json(explanations)
        return
    from rich.console import Console

    from scheduler.tools.whatif.explanation_text import show_group

    for explanation in explanations:
        show_group(Console(highlight=False), explanation, all_nodes=all_nodes)


def _check_event(event: str | None, cluster: str | None) -> None:
    if event is not None and cluster is None:
        fail("--event needs --cluster FILE")
    if event == cluster == STANDARD_INPUT:
        fail("--cluster and --event cannot both be standard input")


def _check_in_vain(options: Mapping[str, object], why: str) -> None:
    """Exit with a message if one of these options is given, which would have no effect."""
    for name, value in options.items():
        if value:
            fail(f"{name} {why}")


def _check_group(group: str | None, *, is_alone: bool) -> None:
    if group is not None and not is_alone:
        fail("--group cannot be combined with --pod, --sequence and --event")


def _key_of_judged(name: str, cluster: ClusterFile, configuration: Configuration, *, alone: bool) -> str:
    """Return the key of the named pod; exit with a message if it cannot be evaluated.

    A pod on a node can be evaluated only `alone`, as if it were pending: no event requeues it, and it has no place in a
    sequence.
    """
    key = _key(name)
    pod = next((each for each in cluster.pods if each.key == key), None)
    profiles = [profile.scheduler_name for profile in configuration.settings.profiles]
    if pod is None:
        fail(f"pod {key} is not in the file")
    if why_not := _why_not_judged(pod, profiles, alone=alone):
        fail(f"pod {key} {why_not}")
    return key


def _why_not_judged(pod: PodInfo, profiles: list[str], *, alone: bool) -> str:
    """Return why a pod cannot be evaluated; "" if it can."""
    if pod.is_terminal:
        return f"has ended ({pod.pod.status.phase})"
    if pod.is_terminating:
        return "is being deleted"
    if pod.node_name and not alone:
        return f"is already on node {pod.node_name}: --sequence and --event are for pending pods"
    if pod.scheduler_name not in profiles:
        return f"has schedulerName {pod.scheduler_name}; the profiles are {', '.join(profiles)}"
    return ""


def _refuse_group_of_others(cluster: ClusterFile, configuration: Configuration, key: str) -> None:
    """Exit with a message if all pods of a group belong to other schedulers: else it would seem to have no pending pod."""
    profiles = [profile.scheduler_name for profile in configuration.settings.profiles]
    names = {pod.scheduler_name for pod in cluster.pods if pod.group is not None and pod.group.key == key}
    if names and names.isdisjoint(profiles):
        fail(
            f"pods of group {key} have schedulerName {', '.join(sorted(names))}; "
            f"the profiles are {', '.join(profiles)}"
        )


def _say_whose_pods_there_are(cluster: ClusterFile, configuration: Configuration) -> None:
    names = ", ".join(profile.scheduler_name for profile in configuration.settings.profiles)
    others = Counter(pod.scheduler_name for pod in cluster.pods if is_pending(pod))
    message = f"There is no pending pod whose spec.schedulerName is {names}."
    if others:
        counted = ", ".join(f"{count} with {name}" for name, count in sorted(others.items()))
        message += (
            f" Pending pods of other schedulers: {counted}. --scheduler-name NAME evaluates them with the default plugins, "
            "--config FILE with the plugins of a profile of that name."
        )
    if any(pod.node_name and not pod.is_terminal for pod in cluster.pods):
        message += " --pod NS/NAME evaluates a pod on a node as if it were pending."
    click.echo(message, err=True)


def _write_json(explanations: Iterable[dict[str, Any]]) -> None:
    # One at a time: a thousand pods on five thousand nodes have five million filter results.
    out = sys.stdout
    separator = "[\n"
    for explanation in explanations:
        text = msgspec.json.format(msgspec.json.encode(explanation), indent=2).decode()
        out.write(f"{separator}{text}")
        separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_tables(explanations: Iterable[dict[str, Any]], *, all_nodes: bool) -> None:
    from rich.console import Console  # not for JSON, where it would be half of the start

    from scheduler.tools.whatif.explanation_text import show

    console = Console(highlight=False)
    for explanation in explanations:
        show(console, explanation, all_nodes=all_nodes)


class _StartedWhenNeeded(logging.Handler):
    """Configures logging at the first log line; mostly there is none, and it takes a while."""

    def emit(self, record: logging.LogRecord) -> None:
        from scheduler.daemon.logs import LogFormat, configure_logging

        configure_logging(logging.WARNING, LogFormat.TEXT)
        logging.getLogger().handle(record)
