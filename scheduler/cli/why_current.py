"""Why a pod, a group or all pending pods wait: the leading daemon's answer, or an evaluation in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
import yaml
from rich.text import Text

from scheduler.cli.why_autoscaler import autoscaler_of, missing_node
from scheduler.cli.why_output import console_for_people, show_pod, show_waiting, write_json
from scheduler.configuration.load import load, parse
from scheduler.configuration.overrides import with_features
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.daemon.app.leader import NoLeaderError, at_url, leader
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.engine.cycle.verdict import verdict
from scheduler.errors import ApiError, ConfigurationError, FieldError, SchedulerError
from scheduler.kube.client.connect import Credentials, connected
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import Request
from scheduler.objects.decode import decode_pod
from scheduler.objects.wording import did_you_mean
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.evaluation import evaluate_each, is_pending
from scheduler.tools.whatif.explanation_text import show_group
from scheduler.tools.whatif.group_evaluation import GroupEvaluator
from scheduler.tools.whatif.live_cluster import read_cluster, read_objects
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.pending_causes import by_cause, last_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from pathlib import Path

    from scheduler.configuration.overrides import GivenFeatures
    from scheduler.daemon.app.rights import Named
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.objects.pod import PodInfo


@dataclass(frozen=True, slots=True)
class Lookup:
    """The cluster, and the form of the output.

    Attributes:
        kubeconfig: path of the kubeconfig, as in `Credentials`.
        context: context of the kubeconfig, as in `Credentials`.
        namespace: namespace of the request; None for the context's.
        config: configuration with the profiles to use; None for the default plugins.
        features: emulated version and gates that override the configuration's.
        as_json: whether to print JSON.
        all_nodes: whether tables show every node.
    """

    kubeconfig: str | None
    context: str
    namespace: str | None
    config: Path | None
    features: GivenFeatures
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
        versions = ServerVersions(self.features)
        await versions.ask(connection)
        scheduler = await asyncio.to_thread(self._without_cluster, sorted(set(names)), versions.closest)
        cluster = await read_cluster(connection, scheduler.needs.kinds)
        scheduler.fill(cluster)
        return scheduler, cluster

    def _without_cluster(self, names: list[str], version: str) -> OfflineScheduler:
        configured = partial(with_features, given=self.features, server=version)
        if self.config is not None:
            scheduler = OfflineScheduler(ClusterFile(), configured(load(self.config, version=None)))
            for name in names:
                if name not in scheduler.frameworks:
                    there = ", ".join(scheduler.frameworks)
                    problem = f"there is no profile {name}; the profiles are {there}"
                    raise ConfigurationError([FieldError("profiles", problem)], str(self.config))
            return scheduler
        profiles: list[dict[str, Any]] = [{"schedulerName": name} for name in names]
        document = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}
        configuration = parse(yaml.safe_dump(document))
        return OfflineScheduler(ClusterFile(), configured(configuration))

    @property
    def plugins(self) -> str:
        """Description of the plugins that this process uses."""
        return "kube-scheduler's default plugins" if self.config is None else f"the profiles of {self.config}"


_SIMILARITY: Final = 0.8
"""Of schedulerNames: many of them end in "-scheduler"."""
_NOT_FOUND: Final = 404
_ASK_AGAIN_SECONDS: Final = 2.0
_DECIDE_AGAIN_SECONDS: Final = 10.0
"""Longer, because every evaluation lists all nodes and pods."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The daemon to ask, and the token to send.

    Attributes:
        lease: the lease that it holds.
        server: URL of its HTTP endpoints; None for a forwarded port.
        token_file: file with the token; None for the token of `app.leader`.
    """

    lease: Named
    server: str | None
    token_file: Path | None


class NoSuchPodError(SchedulerError):
    """There is no pod of that name."""


async def look_at_pod(look: Lookup, name: str, ask: Ask | None, *, node: str | None, watch: bool) -> None:
    """Show why a pod waits, or its node; with `watch` until it is on a node or deleted.

    Args:
        look: the cluster.
        name: name of the pod, or `namespace/name`.
        ask: the daemon; None to ask none.
        node: show only this node.
        watch: whether to go on until the pod is on a node.

    Raises:
        SchedulerError: the cluster cannot be read, or there is no such pod.
    """
    token = token_of(ask)
    async with look.connect() as (connection, namespace):
        key = name if "/" in name else f"{namespace}/{name}"
        shown: object = None
        noted = ""
        while True:
            try:
                pod = await _read(connection, key)
            except NoSuchPodError:
                if shown is None:
                    raise
                click.echo(f"pod {key} is deleted", err=True)
                return
            answer, note, why_not_asked = await _asked(connection, ask, token, key)
            if note not in {"", noted}:
                click.echo(f"no daemon answers: {note}", err=True)
            noted = note
            answer = answer or await _decided(look, connection, pod, why_not_asked)
            pending = is_pending(pod)
            answer = {
                "verdict": answer["verdict"],
                "lastMessage": last_message(pod),
                "missingNode": await missing_node(connection, pod) if pending else None,
                "autoscaler": await autoscaler_of(connection, pod) if pending else None,
                **answer,
            }
            if _without_times(answer) != shown:
                shown = _without_times(answer)
                show_pod(answer, node=node, as_json=look.as_json, all_nodes=look.all_nodes)
            if not watch or pod.node_name or pod.is_terminal:
                return
            await asyncio.sleep(_ASK_AGAIN_SECONDS if answer["history"] else _DECIDE_AGAIN_SECONDS)


def token_of(ask: Ask | None) -> str:
    """Return the token for the daemon; "" for the token of `app.leader`."""
    if ask is None or ask.token_file is None:
        return ""
    try:
        return ask.token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError([FieldError("", problem)], str(ask.token_file)) from error


async def _read(connection: ApiConnection, key: str) -> PodInfo:
    try:
        answer = await connection.send(Request("GET", PODS.path(*key.split("/", 1))))
    except ApiError as error:
        if error.status == _NOT_FOUND:
            raise NoSuchPodError(f"there is no pod {key}") from error
        raise
    return decode_pod(answer.body)


async def _asked(
    connection: ApiConnection, ask: Ask | None, token: str, key: str
) -> tuple[dict[str, Any] | None, str, str]:
    """Return the leading daemon's answer about a pod, if it places the pod.

    Returns:
        The answer; why no daemon answers; and the daemon's verdict about a pod that it does not place.
    """
    if ask is None:
        return None, "", ""
    reached = at_url(ask.server, token) if ask.server is not None else leader(connection, ask.lease, token)
    try:
        async with reached as daemon:
            answer = await daemon.explain(key)
            if answer is None or not (answer["attempt"] or answer["history"] or answer.get("now")):
                return None, "", "" if answer is None or answer["node"] else answer["verdict"]
            return {"decidedBy": daemon.name, "now": None, **answer}, "", ""
    except NoLeaderError as error:
        return None, str(error), ""


async def _decided(
    look: Lookup, connection: ApiConnection, pod: PodInfo, why_not_asked: str
) -> dict[str, Any]:
    """Evaluate a pod in this process, and return it in the form of a daemon's answer; an ended or terminating pod is not evaluated."""
    what = "is being deleted" if pod.is_terminating else f"has ended ({pod.pod.status.phase})"
    answer: dict[str, Any] = {
        "verdict": f"Pod {pod.key} {what}.",
        "decidedBy": None,
        "pod": pod.key,
        "node": pod.node_name or None,
        "place": None,
        "history": [],
        "schedulingGates": [gate.name for gate in pod.pod.spec.scheduling_gates],
        "attempt": None,
        "now": None,
    }
    if pod.is_terminal or pod.is_terminating:
        return answer
    scheduler, cluster = await look.scheduler(connection, [pod.scheduler_name])
    (judged,) = await asyncio.to_thread(lambda: [*evaluate_each(scheduler, [pod])])
    when = "now" if pod.node_name else "attempt"
    sentences = (why_not_asked or _unserved(pod, cluster.pods), judged.explanation["verdict"])
    return {
        **answer,
        "verdict": " ".join(filter(None, sentences)),
        "decidedBy": look.plugins,
        when: judged.explanation,
    }


def _unserved(pod: PodInfo, pods: Iterable[PodInfo]) -> str:
    """Return that a pending pod seems to have no scheduler; "" if its scheduler reported about it, or need not.

    Args:
        pod: the pod.
        pods: the pods of the cluster; a similar schedulerName of one that is on a node is suggested.
    """
    if pod.node_name or pod.pod.spec.scheduling_gates or pod.group is not None or last_message(pod):
        return ""
    name = pod.scheduler_name
    others = sorted({each.scheduler_name for each in pods if each.node_name} - {name})
    hint = did_you_mean(name, others, similarity=_SIMILARITY)
    question = f"does one serve its schedulerName {name}{hint or '?'}"
    return f"No scheduler reported about pod {pod.key}: {question}"


def _without_times(answer: dict[str, Any]) -> object:
    """Return the parts of an answer that make it new; the times differ a little each time."""
    history = [{key: value for key, value in move.items() if key != "at"} for move in answer["history"]]
    return {**answer, "history": history}


class NoSuchGroupError(SchedulerError):
    """There is no pending pod of a group of that name."""


async def look_at_group(look: Lookup, name: str, ask: Ask | None) -> None:
    """Show why a group waits.

    Args:
        look: the cluster.
        name: name of the group, or `namespace/name`.
        ask: the daemon; None to ask none.

    Raises:
        SchedulerError: the cluster cannot be read, or there is no pending pod of the group.
    """
    token = token_of(ask)
    async with look.connect() as (connection, namespace):
        key = name if "/" in name else f"{namespace}/{name}"
        found, who = await _asked_group(connection, ask, token, key)
        if found is None:
            found, who = await _decided_group(look, connection, key), None
    if look.as_json:
        write_json({"decidedBy": who or look.plugins, "groups": found})
        return
    console = console_for_people()
    description = f"From {who}:" if who else f"Evaluated now with {look.plugins}:"
    console.print(Text(description, style="italic"))
    for explanation in found:
        show_group(console, explanation, all_nodes=look.all_nodes)


async def _asked_group(
    connection: ApiConnection, ask: Ask | None, token: str, key: str
) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the leading daemon's answer about a group and its name; None for both if it does not know the group."""
    if ask is None:
        return None, None
    reached = at_url(ask.server, token) if ask.server is not None else leader(connection, ask.lease, token)
    try:
        async with reached as daemon:
            answer = await daemon.explain_group(key)
            return (None, None) if answer is None else (answer["groups"], daemon.name)
    except NoLeaderError as error:
        click.echo(f"no daemon answers: {error}", err=True)
        return None, None


async def _decided_group(look: Lookup, connection: ApiConnection, key: str) -> list[dict[str, Any]]:
    namespace = key.partition("/")[0]
    pods = await read_objects(connection, PODS, decode_pod, namespace=namespace)
    names = [
        pod.scheduler_name
        for pod in pods.values()
        if is_pending(pod) and pod.group is not None and pod.group.key == key
    ]
    if not names:
        raise NoSuchGroupError(f"there is no pending pod of group {key}")
    scheduler, _ = await look.scheduler(connection, names)

    def judged() -> list[dict[str, Any]]:
        judge = GroupEvaluator(scheduler)
        return [judge.judge(each).explanation for each in judge.named(key)]

    return await asyncio.to_thread(judged)


_MOST_EVALUATED: Final = 20
"""The number of groups of pending pods with a verdict, the largest first."""
_Verdict = tuple[str, "Sequence[Any]", "Sequence[Any]"]
"""The verdict about a pod with the best remedy, all remedies, and the causes."""


async def look_at_pending(look: Lookup, ask: Ask | None) -> None:
    """Show pending pods by cause, in all namespaces unless one is given: the verdict about the first pod, and the messages.

    Args:
        look: the cluster.
        ask: the daemon; None to ask none.

    Raises:
        SchedulerError: the pods cannot be read.
    """
    token = token_of(ask)
    async with look.connect() as (connection, _):
        found = await read_objects(
            connection, PODS, decode_pod, {"fieldSelector": "spec.nodeName="}, namespace=look.namespace or ""
        )
        pods = {pod.key: pod for pod in found.values() if is_pending(pod)}
        groups = by_cause(pods.values())
        first = {group.pods[0]: group for group in groups[:_MOST_EVALUATED]}
        verdicts = await _verdicts_of_daemon(connection, ask, token, first)
        others = [pods[key] for key in first if key not in verdicts]
        verdicts |= await _verdicts_of_this_process(look, connection, others)
    for key, found_for in verdicts.items():
        first[key].verdict, first[key].remedies, first[key].reason_codes = found_for
    show_waiting(groups, as_json=look.as_json)


async def _verdicts_of_daemon(
    connection: ApiConnection, ask: Ask | None, token: str, keys: Iterable[str]
) -> dict[str, _Verdict]:
    """Return key -> the leading daemon's verdict, of the pods in its queue."""
    if ask is None:
        return {}
    reached = at_url(ask.server, token) if ask.server is not None else leader(connection, ask.lease, token)
    try:
        async with reached as daemon:
            answers = {key: await daemon.explain(key) for key in keys}
    except NoLeaderError as error:
        click.echo(f"no daemon answers: {error}", err=True)
        return {}
    found = {}
    for key, answer in answers.items():
        if answer is None or not (answer["attempt"] or answer["history"]):
            continue
        attempt = answer["attempt"]
        is_of_attempt = attempt is not None and attempt["verdict"] == answer["verdict"]
        found[key] = (
            _with_best_remedy(attempt) if is_of_attempt else (answer["verdict"], (), answer.get("causes", ()))
        )
    return found


async def _verdicts_of_this_process(
    look: Lookup, connection: ApiConnection, pods: Sequence[PodInfo]
) -> dict[str, _Verdict]:
    """Return what `_verdicts_of_daemon` returns for pods that this process evaluates; none, with a note, if it cannot."""
    if not pods:
        return {}
    try:
        scheduler, cluster = await look.scheduler(connection, [pod.scheduler_name for pod in pods])
    except SchedulerError as error:
        click.echo(f"{len(pods)} groups of pods have no verdict: {error}", err=True)
        return {}
    judged = await asyncio.to_thread(lambda: [*evaluate_each(scheduler, pods)])
    found = {}
    for pod, each in zip(pods, judged, strict=True):
        sentence, remedies, causes = _with_best_remedy(each.explanation)
        found[pod.key] = " ".join(filter(None, (_unserved(pod, cluster.pods), sentence))), remedies, causes
    return found


def _with_best_remedy(explanation: Mapping[str, Any]) -> _Verdict:
    """Return the verdict of an explanation with the first remedy only, all remedies, and the causes."""
    remedies: Sequence[Any] = explanation.get("remedies", ())
    sentence = verdict({**explanation, "remedies": remedies[:1]})
    return sentence, remedies, explanation.get("causes", ())
