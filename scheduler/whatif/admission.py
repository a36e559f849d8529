"""What the API server would make of planned pods: asked for in a dry run, which creates nothing.

What it knows and nobody else does comes with it: quotas, defaults of LimitRanges, overhead of RuntimeClasses, webhooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.client.http.request import Request
from scheduler.client.resources import PODS
from scheduler.errors import ApiError

if TYPE_CHECKING:
    from scheduler.client.connection import ApiConnection
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.whatif.planned import Planned

_ITS_OWN: Final = ("affinity", "hostname", "subdomain", "volumes")
"""In what pods of one workload may differ: they are not asked about one by one."""
_NO_ANSWER: Final = 0
_MAY_NOT: Final = 'cannot create resource "pods"'


async def admit(connection: ApiConnection, planned: Planned, *, knows_all: bool) -> str:
    """Give a workload's pods what the API server would give them, or have it say why it would not take them.

    Args:
        connection: to the API server.
        planned: the workload.
        knows_all: whether all is there that it needs to say so.

    Returns:
        Why it was not asked, or what it said is not believed; "" if it is.

    Raises:
        ApiError: no answer.
    """
    if not planned.pods:
        return ""
    first = planned.pods[0]
    asked = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _identity(first),
        "spec": _as_written(first["spec"]),
    }
    path = PODS.path(planned.namespace)
    request = Request("POST", path, msgspec.json.encode(asked), params={"dryRun": "All"})
    try:
        answer = await connection.send(request)
    except ApiError as error:
        if error.status == _NO_ANSWER:
            raise
        said = error.message.removeprefix(f"{request}: {error.status}: ")
        if not knows_all or _MAY_NOT in said:
            return said
        planned.problem = said
        planned.pods = []
        return ""
    written, spec = _as_written(first["spec"]), msgspec.json.decode(answer.body)["spec"]
    planned.pods = [{**pod, "spec": _admitted(pod["spec"], written, spec)} for pod in planned.pods]
    return ""


def _identity(pod: Object) -> Object:
    metadata = pod["metadata"]
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
    return {**kept, "generateName": f"{metadata['name']}-"}


def _as_written(spec: Object) -> Object:
    """Return a pod's spec without what the API server fills in and refuses to be told."""
    return {key: value for key, value in spec.items() if key not in {"priority", "preemptionPolicy"}}


def _admitted(own: Object, asked: Object, answered: Object) -> dict[str, Any]:
    spec = dict(answered)
    for name in _ITS_OWN:
        if own.get(name) != asked.get(name):
            spec.pop(name, None)
            spec |= {name: own[name]} if name in own else {}
    return spec
