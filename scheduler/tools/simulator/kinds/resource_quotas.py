"""ResourceQuotas: what the pods of a namespace use of them, and the refusal of pods that exceed them.

Counted are pods, and their requests and limits. Quotas with scopes, and the amounts of other kinds, are not enforced.

Source:
    kube-apiserver v1.36, pkg/quota/v1/evaluator/core/pods.go, and
    staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go, checkRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.decode import typed_object
from scheduler.objects.quantity import Quantity, parse_quantity, quantity_text
from scheduler.objects.resources import pod_limits, pod_requests
from scheduler.objects.v1 import Pod
from scheduler.tools.simulator.apimachinery.status import forbidden_resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MUST_HAVE: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""Resources that each container must request if a quota has them."""


def used_by(pod: Object) -> dict[str, Quantity]:
    """Return what a pod uses of quotas: name in `spec.hard` -> amount; nothing if it has ended."""
    if pod.get("status", {}).get("phase") in _ENDED:
        return {}
    spec = typed_object(pod, Pod)
    one = Quantity(1)
    found = {"pods": one, "count/pods": one}
    for name, amount in pod_requests(spec).items():
        found[f"requests.{name}"] = amount
        if name in {"cpu", "memory", "ephemeral-storage"}:
            found[name] = amount
    for name, amount in pod_limits(spec).items():
        found[f"limits.{name}"] = amount
    return found


def usage(quota: Object, pods: Iterable[Object]) -> dict[str, str]:
    """Return `status.used` of a quota, for the amounts in its `spec.hard` that are counted.

    Args:
        quota: the ResourceQuota.
        pods: the pods of its namespace.
    """
    hard = _counted(quota)
    total = dict.fromkeys(hard, Quantity(0))
    for pod in pods:
        for name, amount in used_by(pod).items():
            if name in total:
                total[name] += amount
    return {name: quantity_text(amount, hard[name]) for name, amount in total.items()}


def check_pod(pod: Object, cluster: Cluster) -> None:
    """Refuse a new pod that exceeds a quota of its namespace.

    Raises:
        StatusError: 403.
    """
    namespace, name = pod["metadata"].get("namespace", ""), pod["metadata"].get("name", "")
    quotas = [each for each in cluster.each("resourcequotas") if each["metadata"]["namespace"] == namespace]
    if not quotas:
        return
    wanted = used_by(pod)
    others = [each for each in cluster.each("pods") if each["metadata"]["namespace"] == namespace]
    for quota in quotas:
        hard, used = _counted(quota), usage(quota, others)
        exceeded = sorted(
            each
            for each, limit in hard.items()
            if each in wanted and parse_quantity(limit) < parse_quantity(used[each]) + wanted[each]
        )
        text = ""
        if missing := sorted(_MUST_HAVE & hard.keys() - wanted.keys()):
            text = f"failed quota: {quota['metadata']['name']}: must specify {','.join(missing)}"
        elif exceeded:
            asked = {each: quantity_text(wanted[each], hard[each]) for each in exceeded}
            text = (
                f"exceeded quota: {quota['metadata']['name']}, requested: {_joined(exceeded, asked)}, "
                f"used: {_joined(exceeded, used)}, limited: {_joined(exceeded, hard)}"
            )
        if text:
            raise forbidden_resource("", "pods", name, text)


def _counted(quota: Object) -> dict[str, str]:
    """Return the enforced part of `spec.hard`."""
    spec = quota.get("spec", {})
    if spec.get("scopes") or spec.get("scopeSelector"):
        return {}
    prefixes = ("requests.", "limits.")
    names = {"pods", "count/pods", "cpu", "memory", "ephemeral-storage"}
    return {
        name: str(amount)
        for name, amount in spec.get("hard", {}).items()
        if name in names or (name.startswith(prefixes) and name != "requests.storage")
    }


def _joined(names: Iterable[str], amounts: Mapping[str, str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)
