"""The board's data about controllers, groups, quotas and past preemptions."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339_micro
from scheduler.daemon.app.live_explain import live_groups
from scheduler.engine.cycle.group_explanation import GroupLog
from scheduler.engine.cycle.time_slices import run_in_slices
from scheduler.loop_work import calls_plugin_code
from scheduler.objects.pod_group import GroupKey
from scheduler.tools.board.object_details import owner_of
from scheduler.tools.whatif.pending_causes import causes_in, last_message

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from scheduler.engine.cycle.preemption import PastPreemption
    from scheduler.framework import Plugin, QuotaUsage
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.board.subject import Subject

logger = logging.getLogger(__name__)

_PODS_A_STEP: Final = 500
_MOST_PODS: Final = 500
_MOST_PREEMPTIONS: Final = 200


def controller_details(
    subject: Subject, namespace: str, owner: str
) -> Generator[None, None, dict[str, Any] | None]:
    """Return the pods of a controller (`Kind/name`), in steps; None if it has none.

    Returns:
        As JSON values: `count`, `placed`, the number of pods with a node, `requests` of all pods, `nodes`, the number of pods
        by node, `causes`, the number of pending pods by message, and `pods`, at most 500.
    """
    pods: list[PodInfo] = []
    for place, pod in enumerate(list(subject.parts.pods.values())):
        if place % _PODS_A_STEP == 0:
            yield
        if pod.namespace == namespace and owner_of(pod) == owner:
            pods.append(pod)
    if not pods:
        return None
    requests: Counter[str] = Counter()
    for place, pod in enumerate(pods):
        if place % _PODS_A_STEP == 0:
            yield
        requests.update(pod.resources.requests)
    pods.sort(key=lambda pod: (bool(pod.node_name), pod.key))
    return {
        "controller": owner,
        "namespace": namespace,
        "count": len(pods),
        "placed": sum(bool(pod.node_name) for pod in pods),
        "requests": dict(requests),
        "nodes": dict(Counter(pod.node_name for pod in pods if pod.node_name).most_common()),
        "causes": dict(Counter(message_of(subject, pod) for pod in pods if not pod.node_name).most_common()),
        "pods": [_pod(subject, pod) for pod in pods[:_MOST_PODS]],
    }


def message_of(subject: Subject, pod: PodInfo) -> str:
    """Return the message of the last attempt at a pending pod; "" if there is none."""
    return subject.attempts.message(pod.key) or last_message(pod)


def _pod(subject: Subject, pod: PodInfo) -> dict[str, Any]:
    return {
        "pod": pod.key,
        "node": pod.node_name or None,
        "place": subject.parts.queue.place_of(pod.uid).value,
        "message": "" if pod.node_name else message_of(subject, pod),
    }


def group_details(subject: Subject, key: str) -> dict[str, Any] | None:
    """Return the groups named `namespace/name`; None if there is none.

    Returns:
        As JSON values: `groups`, as of `live_groups`, each with its pods on nodes as `onNodes`.
    """
    parts = subject.parts
    found = live_groups(parts, subject.group_attempts or GroupLog(parts.clock), key)
    if found is None:
        return None
    for group in found["groups"]:
        namespace, _, name = group["group"].partition("/")
        leaves = parts.profiles.leaves_below(GroupKey(group["kind"], namespace, name))
        placed = {pod.key: pod.node_name for leaf in leaves for pod in parts.cache.groups.placed(leaf)}
        group["onNodes"] = dict(sorted(placed.items()))
    return found


async def quota_usages(subject: Subject) -> list[dict[str, Any]]:
    """Return the use of each queue and quota of all plugins as JSON values: the fields of `QuotaUsage`, and the `plugin`."""
    pending = [each.pod for each in subject.pending()]
    found: list[dict[str, Any]] = []
    for by_profile in subject.parts.profiles.with_quotas():
        its, plugins = [pod for pod in pending if pod.scheduler_name in by_profile], [*by_profile.values()]
        try:
            usages = await run_in_slices(_usages(plugins, its))
        except Exception:
            logger.exception("Plugin has no quotas", extra={"plugin": plugins[0].name})
            continue
        found += [{"plugin": plugins[0].name, **each._asdict()} for each in usages]
    return found


@calls_plugin_code
def _usages(
    plugins: Sequence[Plugin], pending: Sequence[PodInfo]
) -> Generator[None, None, Sequence[QuotaUsage]]:
    return (yield from plugins[0].quota_usages(plugins, pending))


def past_preemptions(subject: Subject) -> Generator[None, None, dict[str, Any]]:
    """Return the last preemptions, the newest first, in steps.

    Returns:
        As JSON values: `preemptions`, at most 200, each with `cause`, why the preemptor did not fit ("" if that is forgotten),
        and `placed`, the node of the preemptor now; `count`, the number of preemptions that are kept.
    """
    kept: list[PastPreemption] = list(subject.preemptions or ())
    found = []
    for each in reversed(kept[-_MOST_PREEMPTIONS:]):
        yield
        now = subject.parts.pods.get(each.preemptor) if each.kind == "pod" else None
        found.append(
            {
                "at": rfc3339_micro(each.at),
                "kind": each.kind,
                "preemptor": each.preemptor,
                "priority": each.priority,
                "node": each.node_name or None,
                "plugin": each.plugin,
                "quota": each.quota,
                "victims": [{"pod": pod, "priority": priority} for pod, priority in each.victims],
                "count": each.n_victims,
                "cause": _cause(subject, each),
                "placed": now.node_name or None if now is not None and now.uid == each.uid else None,
            }
        )
    return {"preemptions": found, "count": len(kept)}


def _cause(subject: Subject, past: PastPreemption) -> str:
    """Return why the preemptor did not fit: a pod by its attempt that chose the node, a group by its first such member."""
    message = past.message
    for attempt in subject.attempts.of(past.preemptor) if past.kind == "pod" else ():
        decision = attempt.decision
        if decision.pod.uid == past.uid and past.node_name == decision.nominated_node_name:
            message = decision.status.message
            break
    return ", ".join(_reasons(message))


def _reasons(message: str) -> Iterable[str]:
    for reason, nodes in causes_in(message).reasons:
        yield reason if nodes is None else f"{nodes} {reason}"
