"""Objects that are not created yet: the pods that controllers and the API server would create from manifests."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from random import Random, randbytes
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from scheduler.configuration.manifests import item_of
from scheduler.errors import AdmissionError, FieldError, ObjectError, SchedulerError
from scheduler.objects.admission import admit_pod, class_of, default_class, merge_label_keys
from scheduler.objects.created_pods import (
    CONTROLLER_UID,
    claim_from_template,
    copied_annotations,
    daemon_nodes,
    daemon_pod,
    ephemeral_claim,
    generated_name,
    job_labels,
    job_pod,
    replica_pod,
    replica_set_of,
    stateful_claims,
    stateful_pod,
)
from scheduler.objects.decode import without_nulls
from scheduler.objects.limit_ranges import default_limit_range
from scheduler.objects.meta import ApiStruct
from scheduler.objects.pod_defaults import default_claim_spec
from scheduler.objects.selectors import LabelSelector, SelectorError, parse_label_selector
from scheduler.tools.whatif.documents import identify, with_pod_defaults
from scheduler.tools.whatif.start_preview import MOST_PODS, Planned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.configuration.manifests import Item
    from scheduler.objects.node import NodeObject

    Object = dict[str, Any]

_CLAIMS: Final = "v1/persistentvolumeclaims"
_OF_APPS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
_READ: Final = frozenset({"ReplicaSet", "StatefulSet", "Job"})
"""Controllers of pods that plugins read for their selectors, numbers of pods and annotations."""
_MUST_CREATE: Final = _OF_APPS | {"Job", "CronJob"}
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_READ_BY_ADMISSION: Final = {
    "LimitRange": "limitranges",
    "PriorityClass": "priorityclasses",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "RuntimeClass": "runtimeclasses.node.k8s.io",
    "StorageClass": "storageclasses",
}

_NAMESPACED: Final = frozenset({"LimitRange", "ResourceClaimTemplate"})


class PlanError(SchedulerError):
    """All errors of manifests.

    Attributes:
        faults: the errors, with the place of each manifest.
    """

    def __init__(self, faults: Iterable[FieldError]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class _Existing:
    """The objects that admission reads; an `ExistingObjects`."""

    def __init__(self, given: Mapping[str, Iterable[Object]]) -> None:
        self._objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        for name, value in _SYSTEM_CLASSES.items():
            self.add("priorityclasses", {"metadata": {"name": name}, "value": value})
        for resource, objects in given.items():
            for obj in objects:
                self.add(resource, obj)

    def add(self, resource: str, obj: Object) -> None:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        self._objects[resource]["/".join(filter(None, (namespace, metadata["name"])))] = obj

    def find(self, resource: str, name: str) -> Object | None:
        return self._objects[resource].get(name)

    def each(self, resource: str) -> Sequence[Object]:
        return [*self._objects[resource].values()]


class Plan:
    """Creates the pods of manifests.

    Args:
        namespace: namespace of objects that name none.
        existing: existing objects that affect pods, by plural: PriorityClasses, StorageClasses, ResourceClaimTemplates.
        nodes: the nodes that DaemonSets have pods on.
        replicas: number of pods of each object; None for its own number.

    Attributes:
        others: the other objects that would exist: (kind, as in plugins' `needs`; `namespace/name`) -> object. The
            controllers of the pods have no template, because the plan has their pods already.
    """

    def __init__(
        self,
        namespace: str,
        existing: Mapping[str, Iterable[Object]] | None = None,
        nodes: Iterable[NodeObject] = (),
        replicas: int | None = None,
    ) -> None:
        self.others: dict[tuple[str, str], Object] = {}
        self._namespace_of_others, self._nodes, self._replicas = namespace, [*nodes], replicas
        self._existing = _Existing(existing or {})
        self._random = Random(randbytes(8))
        self._names: set[tuple[str, str]] = set()

    def make(self, items: Iterable[Item]) -> list[tuple[Item, Planned]]:
        """Return the manifests that create pods, in their order, with these pods.

        Objects that create no pods exist before those that do, in any order of the manifests.

        Raises:
            PlanError: all errors of the manifests.
        """
        faults: list[FieldError] = []
        creating: list[tuple[Item, Object]] = []
        made: list[tuple[Item, Planned]] = []
        for item in items:
            with _noting(faults, item):
                obj = {**msgspec.json.decode(item.raw), "apiVersion": item.api_version, "kind": item.kind}
                placed = self._namespace(item, obj)
                obj["metadata"] = {**obj["metadata"], **placed}
                if item.kind == "Pod" or creates_pods(obj):
                    creating.append((item, obj))
                elif item.kind in _MUST_CREATE and not _is_made(obj):
                    raise ObjectError(item.kind, "", "spec", "has no template with a list of containers")
                else:
                    self._add(obj)
        for item, obj in creating:
            with _noting(faults, item):
                made.append((item, self._made(obj)))
        if faults:
            raise PlanError(faults)
        return made

    def _namespace(self, item: Item, obj: Object) -> dict[str, str]:
        """Return the namespace of an object; empty for one without, or of a kind that is not known.

        Raises:
            ObjectError: the object has no name.
        """
        metadata = obj.get("metadata") or {}
        try:
            named = identify(item._replace(name=item.name or metadata.get("generateName")))
        except ValueError as error:
            raise ObjectError(item.kind or "object", "?", "", str(error)) from error
        if creates_pods(obj) or item.kind in _NAMESPACED or named.item.namespace is not None:
            return {"namespace": item.namespace or self._namespace_of_others}
        return {}

    def _add(self, obj: Object) -> None:
        """Add an object that plugins or admission read, as the API server would have it."""
        if obj["kind"] == "PersistentVolumeClaim":
            default_claim_spec(obj["spec"])
            default = default_class(self._existing.each("storageclasses"))
            if default and class_of(obj) is None:
                obj["spec"]["storageClassName"] = default
            obj.setdefault("status", {"phase": "Pending"})
        elif obj["kind"] == "LimitRange":
            default_limit_range(obj)
        elif obj["kind"] == "PodGroup":
            spec = obj.get("spec") or {}
            if spec.get("priorityClassName") and "priority" not in spec:
                found = self._existing.find("priorityclasses", spec["priorityClassName"]) or {}
                spec["priority"] = int(found.get("value", 0))
        obj["metadata"].setdefault("uid", str(uuid4()))
        identity = identify(item_of(msgspec.json.encode(obj), ""))
        self.others.setdefault((identity.kind, identity.key), obj)
        resource = _READ_BY_ADMISSION.get(obj["kind"])
        if resource is not None:
            self._existing.add(resource, obj)

    def _made(self, obj: Object) -> Planned:
        """Return an object that creates pods, with these pods.

        Raises:
            ObjectError: it is malformed.
        """
        metadata = obj["metadata"]
        planned = Planned(obj["kind"], metadata["namespace"], _name(obj))
        try:
            if obj["kind"] == "Pod":
                pod = _completed(obj, "", planned)
                if not metadata.get("name"):
                    del pod["metadata"]["name"]
                pods: Iterable[Object] = self._copies(pod)
            else:
                workload = self._workload(obj, planned)
                planned.in_order = (
                    obj["kind"] == "StatefulSet" and obj["spec"].get("podManagementPolicy") != "Parallel"
                )
                pods = self._pods_of(workload)
            planned.pods = [self._created(pod, planned.namespace) for pod in pods]
        except AdmissionError as error:
            planned.problem = str(error)
        if not planned.pods and not planned.problem:
            planned.problem = "it requests no pods in this cluster"
        return planned

    def _copies(self, pod: Object) -> list[Object]:
        if self._replicas is None:
            return [pod]
        metadata = {name: value for name, value in pod["metadata"].items() if name != "uid"}
        names = (f"{_name(pod)}-{number}" for number in range(self._replicas))
        return [{**pod, "metadata": {**metadata, "name": name}} for name in names]

    def _workload(self, obj: Object, planned: Planned) -> Object:
        """Return an object that creates pods as one of the kinds that `_pods_of` knows, with a complete template.

        Raises:
            ObjectError: it is malformed.
            AdmissionError: the API server would refuse it.
        """
        kind, own, spec, path = obj["kind"], obj["metadata"], obj["spec"], "spec."
        if kind == "CronJob":
            template, kind, path = spec["jobTemplate"], "Job", "spec.jobTemplate.spec."
            own, spec = {**(template.get("metadata") or {}), "namespace": own["namespace"]}, template["spec"]
        try:
            read = msgspec.convert(spec, _Creating)
        except msgspec.ValidationError as error:
            problem, _, place = str(error).partition(" - at `$.")
            raise ObjectError(kind, "", f"{path}{place.rstrip('`')}", problem) from error
        spec = without_nulls(spec, _Creating)
        template = spec["template"]
        pod = _completed(
            {"metadata": template.get("metadata") or {}, "spec": template["spec"]},
            f"{path}template.",
            planned,
        )
        labels = pod["metadata"].get("labels", {})
        if kind in _OF_APPS and (read.selector is None or not _selects(read.selector, labels)):
            raise AdmissionError(f"{path}selector does not match the labels of {path}template")
        kept = ("name", "namespace", "labels", "annotations")
        metadata = {name: own[name] for name in kept if own.get(name)}
        metadata |= {"name": planned.name, "uid": str(uuid4())}
        inner = {
            name: value for name, value in pod["metadata"].items() if name not in {"name", "namespace", "uid"}
        }
        workload = {
            "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
            "kind": kind,
            "metadata": metadata,
            "spec": {**spec, "template": {"metadata": inner, "spec": pod["spec"]}},
        }
        if kind == "Job" and not spec.get("manualSelector"):
            inner["labels"] = labels | job_labels(workload)
        elif kind not in {*_OF_APPS, "Job"}:
            inner["labels"] = labels or {"app.kubernetes.io/name": planned.name}
            workload["kind"] = "ReplicaSet"
            workload["spec"]["selector"] = {"matchLabels": inner["labels"]}
        return workload

    def _pods_of(self, workload: Object) -> Iterator[Object]:
        """Yield the pods that a workload creates, as if it were not paused or suspended."""
        kind, spec = workload["kind"], workload["spec"]
        replicas = spec.get("replicas", 1) if self._replicas is None else self._replicas
        if kind in {"ReplicaSet", "StatefulSet"}:
            self._add_controller(workload, replicas=replicas)
        if kind == "DaemonSet":
            names = daemon_nodes(workload, self._nodes)[0]
            yield from (daemon_pod(workload, name) for name in names)
        elif kind == "Job":
            yield from self._pods_of_job(workload)
        elif kind == "StatefulSet":
            for index in range(_counted(replicas)):
                for claim in stateful_claims(workload, index).values():
                    self._add_claim(claim, workload["metadata"]["namespace"])
                yield stateful_pod(workload, index)
        else:
            if kind == "Deployment":
                namespace = workload["metadata"]["namespace"]
                workload = replica_set_of(workload, replicas, copied_annotations(workload))
                workload["metadata"] |= {"namespace": namespace, "uid": str(uuid4())}
                self._add_controller(workload)
            yield from (replica_pod(workload) for _ in range(_counted(replicas)))

    def _pods_of_job(self, job: Object) -> Iterator[Object]:
        spec = job["spec"]
        parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
        if self._replicas is not None:
            parallelism = self._replicas
            completions = completions if completions is None else max(parallelism, completions)
        elif "parallelism" not in spec and completions is None:
            completions = 1
        count = parallelism if completions is None else min(parallelism, completions)
        own = {} if spec.get("manualSelector") else {CONTROLLER_UID: job["metadata"]["uid"]}
        selector = spec.get("selector") or {}
        selector = selector | {"matchLabels": (selector.get("matchLabels") or {}) | own}
        self._add_controller(job, parallelism=count, selector=selector)
        is_indexed = spec.get("completionMode") == "Indexed"
        yield from (job_pod(job, index if is_indexed else None) for index in range(_counted(count)))

    def _add_controller(self, workload: Object, **changed: Any) -> None:
        spec = {name: value for name, value in workload["spec"].items() if name != "template"}
        self._add({**workload, "spec": spec | changed})

    def _add_claim(self, claim: Object, namespace: str) -> None:
        metadata = {**claim["metadata"], "namespace": namespace}
        spec = dict(claim["spec"])
        self._add({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})

    def _created(self, pod: Object, namespace: str) -> Object:
        """Return a pod as the API server admits it, with its claims.

        Raises:
            AdmissionError: the API server would refuse it.
        """
        pod = msgspec.json.decode(msgspec.json.encode(pod))  # admission changes it
        metadata, spec = pod["metadata"], pod["spec"]
        metadata["namespace"] = namespace
        if not metadata.get("name"):
            metadata["name"] = self._new_name(namespace, metadata.get("generateName", ""))
        metadata.setdefault("uid", str(uuid4()))
        name = spec.get("priorityClassName")
        if name and "priority" not in spec and self._existing.find("priorityclasses", name) is None:
            raise AdmissionError(
                f"PriorityClass {name} is not known: add it to the objects, or set spec.priority"
            )
        admit_pod(pod, self._existing, knows_all=False)
        merge_label_keys(pod)
        for volume in spec.get("volumes", ()):
            if "ephemeral" in volume:
                self._add_claim(ephemeral_claim(pod, volume), namespace)
        claims = [*self._claims_from_templates(pod, namespace)]
        if claims:
            pod["status"] = {**(pod.get("status") or {}), "resourceClaimStatuses": claims}
        return {"apiVersion": "v1", "kind": "Pod", **pod}

    def _claims_from_templates(self, pod: Object, namespace: str) -> Iterator[Object]:
        """Create the ResourceClaims of a pod's templates; yield their names as the pod's status has them."""
        for asked in pod["spec"].get("resourceClaims", ()):
            template = self._existing.find(
                "resourceclaimtemplates", f"{namespace}/{asked.get('resourceClaimTemplateName')}"
            )
            if template is None:
                continue  # the pod waits for it
            claim = claim_from_template({"kind": "Pod", **pod}, asked["name"], template)
            metadata = claim["metadata"]
            metadata |= {"name": self._new_name(namespace, metadata["generateName"]), "namespace": namespace}
            spec = msgspec.json.decode(msgspec.json.encode(claim["spec"]))
            self._add({**claim, "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec})
            yield {"name": asked["name"], "resourceClaimName": metadata["name"]}

    def _new_name(self, namespace: str, base: str) -> str:
        while (name := (namespace, generated_name(base, self._random))) in self._names:
            pass
        self._names.add(name)
        return name[1]


@contextmanager
def _noting(faults: list[FieldError], item: Item) -> Iterator[None]:
    """Note the error of a manifest; parts that scheduling does not read are not checked before they are used."""
    try:
        yield
    except ObjectError as error:
        faults.append(FieldError(".".join(filter(None, (item.where, error.path))), error.problem))
    except (AttributeError, KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        faults.append(FieldError(item.where, f"does not have the shape of a {item.kind}: {error}"))


def creates_pods(obj: Mapping[str, Any]) -> bool:
    """Return whether an object has a template of pods."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return False
    if obj["kind"] == "CronJob":
        job = spec.get("jobTemplate")
        spec = (job.get("spec") if isinstance(job, dict) else None) or {}
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("containers"), list)


def _is_made(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is a controller that `Plan.others` has, whose pods are given with it."""
    spec = obj.get("spec")
    return (
        obj["kind"] in _READ
        and isinstance(spec, dict)
        and bool(spec.get("selector"))
        and "template" not in spec
    )


def _name(obj: Object) -> str:
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata.get("generateName"))


def _completed(pod: Object, prefix: str, planned: Planned) -> Object:
    """Return a pod with the API server's defaults; its path is `prefix` in the manifest.

    Raises:
        ObjectError: it is malformed.
    """
    named = {"name": planned.name, "namespace": planned.namespace}
    metadata = {"uid": "new", **pod["metadata"], **named}
    try:
        found = with_pod_defaults({**pod, "metadata": metadata})
    except ObjectError as error:
        raise ObjectError(error.kind, error.key, f"{prefix}{error.path}", error.problem) from error
    return {**found, "metadata": {**found["metadata"], "uid": pod["metadata"].get("uid") or str(uuid4())}}


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    try:
        rule = parse_label_selector(msgspec.convert(selector, LabelSelector))
    except (msgspec.ValidationError, SelectorError):
        return False
    return rule.matches(labels)


def _counted(number: int) -> int:
    """Return a number of pods.

    Raises:
        ObjectError: it is more than are evaluated.
    """
    if number > MOST_PODS:
        raise ObjectError("", "", "", f"at most {MOST_PODS} pods are evaluated, there are {number}")
    return number


class _Template(ApiStruct, frozen=True):
    metadata: dict[str, Any] | None = None


class _ClaimMetadata(ApiStruct, frozen=True):
    name: str


class _ClaimTemplate(ApiStruct, frozen=True):
    metadata: _ClaimMetadata
    spec: dict[str, Any]


class _Creating(ApiStruct, frozen=True):
    """The spec of an object that creates pods, as far as it is read here."""

    template: _Template
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    selector: dict[str, Any] | None = None
    service_name: str | None = None
    volume_claim_templates: tuple[_ClaimTemplate, ...] = ()
