"""Quotas: FairQueues' Queues that change parents, also in cycles, and ElasticQuotas that change by the hundred."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from tests.faults.actors.actor import Actor
from tests.faults.pod_facts import has_ended, is_pending, taken_milli
from tests.support.builders import pod_object
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object
    from tests.faults.daemon_runs import Life

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
QUEUES, QUOTAS = "queues.custom-scheduler.io", "elasticquotas.scheduling.x-k8s.io"
_KINDS = {QUEUES: "custom-scheduler.io/v1alpha1/queues", QUOTAS: "scheduling.x-k8s.io/v1alpha1/elasticquotas"}
_QUEUE_NAME = "custom-scheduler.io/queue-name"
_CPU = ("100m", "500m", "1", "2")
_MOST_PODS = 50


class Teams(Actor):
    """Whoever creates pods in the namespaces of teams, and deletes them."""

    definition: ClassVar[str]  # of the objects that limit the teams
    teams: ClassVar[tuple[str, ...]]
    busy: ClassVar[int]  # number of teams with pods
    prefix: ClassVar[str]  # of the pods' names

    def begin(self) -> None:
        store = self.stage.store
        store.create(CRDS, yaml.safe_load((MANIFESTS / "crds" / f"{self.definition}.yaml").read_text()))
        for name in self.teams:
            store.create("namespaces", {"metadata": {"name": name}})
        self.stage.later(0.5, self._create_all)
        self.stage.quota_judges.append(self._judge)

    @abstractmethod
    def _create_all(self) -> None:
        """Create the objects that limit the teams."""

    @abstractmethod
    def _judge(
        self, life: Life, pod: PodInfo, node_name: str, there: Mapping[str, Mapping[str, PodInfo]]
    ) -> None:
        """Find choices that exceed a limit."""

    def _pods(self) -> list[Object]:
        return [pod for pod in self.stage.our_pods() if pod["metadata"]["name"].startswith(self.prefix)]

    def _deploy(self) -> None:
        draw = self.random
        namespace = draw.choice(self.teams[: self.busy])
        for _ in range(draw.choice((1, 2, 4))):
            if len(self._pods()) >= _MOST_PODS:
                return
            self._count += 1
            name = f"{self.prefix}{self._count}"
            self.tell(f"create {name} in {namespace}")
            fields = {"cpu": draw.choice(_CPU), "priority": draw.choice((0, 0, 10))}
            scheduler = draw.choice(self.stage.plan.scheduler_names)
            pod = pod_object(name, namespace=namespace, scheduler_name=scheduler, **fields)
            self.stage.cluster.add_pods(pod)

    def _delete_pod(self) -> None:
        pod = self.one_of(self._pods())
        if pod is not None:
            metadata = pod["metadata"]
            self.tell(f"delete {'pending' if is_pending(pod) else 'placed'} {metadata['name']}")
            self.stage.store.delete("pods", metadata["name"], metadata["namespace"], grace_period_seconds=0)


class Queues(Teams):
    """Whoever divides the cluster among teams.

    Queue qN has the pods of namespace qN if it has no children. Some have no namespace: pods that name them come there.
    """

    name = "queues"
    definition = "queues"
    teams = tuple(f"q{number}" for number in range(8))
    busy = 4
    prefix = "queued-"
    pause_seconds: ClassVar[tuple[float, float]] = (0.5, 4.0)

    async def act(self) -> None:
        self.weighted(
            (8, self._deploy),
            (3, self._reparent),
            (2, self._change),
            (2, self._toggle),
            (2, self._relabel),
            (2, self._delete_pod),
        )()

    def _create_all(self) -> None:
        """Make chains, which end at a root."""
        for number, name in enumerate(self.teams):
            self._create(name, self.random.choice(("", *self.teams[:number])))

    def _create(self, name: str, parent: str) -> None:
        spec: dict[str, Any] = {"weight": self.random.choice((1, 2, 5)), **self._max()}
        if self.random.random() < 0.6:
            spec["namespaces"] = [name]
        if parent:
            spec["parent"] = parent
        if spec["max"] is None:
            del spec["max"]
        self.stage.store.create(
            QUEUES,
            {
                "apiVersion": "custom-scheduler.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": spec,
            },
        )

    def _max(self) -> dict[str, Any]:
        return {"max": self.random.choice((None, *({"cpu": cpu} for cpu in (1, 2, 4))))}

    def _reparent(self) -> None:
        """Give a queue any parent: a descendant of it too, which makes a cycle, or one that does not exist."""
        queue = self.one_of(self.stage.store.list(QUEUES))
        if queue is None:
            return
        name = queue["metadata"]["name"]
        parent = self.random.choice([*5 * (None,), "nowhere", *(each for each in self.teams if each != name)])
        self.tell(f"reparent {name} to {parent}")
        self.stage.store.patch(QUEUES, name, {"spec": {"parent": parent}})

    def calm(self) -> None:
        for queue in self.stage.store.list(QUEUES):
            self.tell(f"{queue['metadata']['name']} is {queue['spec']}")

    def _change(self) -> None:
        queue = self.one_of(self.stage.store.list(QUEUES))
        if queue is not None:
            spec = {"weight": self.random.choice((1, 3, 9)), **self._max()}
            self.tell(f"change {queue['metadata']['name']} to {spec}")
            self.stage.store.patch(QUEUES, queue["metadata"]["name"], {"spec": spec})

    def _toggle(self) -> None:
        name = self.random.choice(self.teams)
        if self.stage.store.find(QUEUES, name) is None:
            self.tell(f"add {name} again")
            self._create(name, self.random.choice(("", *(each for each in self.teams if each != name))))
        else:
            self.tell(f"remove {name}")
            self.stage.store.delete(QUEUES, name)

    def _relabel(self) -> None:
        """Let a pod name another queue, or none; a queue that admits the pod's namespace gets the pod."""
        pod = self.one_of(self._pods())
        if pod is not None:
            metadata = pod["metadata"]
            queues = self.stage.store.list(QUEUES)
            free = [each["metadata"]["name"] for each in queues if not each["spec"].get("namespaces")]
            queue = self.random.choice((None, *self.teams, *free, *free))
            self.tell(f"relabel {metadata['name']} for {queue}")
            patch = {"metadata": {"labels": {_QUEUE_NAME: queue}}}
            self.stage.store.patch("pods", metadata["name"], patch, metadata["namespace"])

    def _judge(
        self, life: Life, pod: PodInfo, node_name: str, there: Mapping[str, Mapping[str, PodInfo]]
    ) -> None:
        """No choice exceeds the max of a queue, or of one above it."""
        known = life.daemon.parts.cache.table.objects(_KINDS[QUEUES]) or {}
        queues = {obj["metadata"]["name"]: obj["spec"] for obj in known.values()}
        for name in _chain(pod.namespace, pod.labels, queues):
            most = (queues[name].get("max") or {}).get("cpu")
            pods = _placed(there, pod)
            used = sum(_cpu(each) for each in pods if name in _chain(each.namespace, each.labels, queues))
            if most is not None and used > 1000 * int(most) and _cpu(pod):
                self.stage.find(
                    f"{pod.key} goes to {node_name}: {name} has {used} milliCPU of {most}", pod.uid
                )

    def check(self, life: Life) -> None:
        """What the server says of each queue is true."""
        queues = {each["metadata"]["name"]: each for each in self.stage.store.list(QUEUES)}
        specs = {name: each["spec"] for name, each in queues.items()}
        used = dict.fromkeys(queues, 0)
        for pod in self.stage.store.list("pods"):
            if pod["spec"].get("nodeName") in life.nodes and not has_ended(pod):
                for name in _chain(pod["metadata"]["namespace"], pod["metadata"].get("labels", {}), specs):
                    used[name] += taken_milli(pod)
        for name, queue in queues.items():
            status = queue.get("status", {})
            condition = next(
                (each for each in status.get("conditions", ()) if each["type"] == "Accepted"), {}
            )
            has_pods = bool(specs[name].get("namespaces"))
            is_valid = _is_leaf(name, specs) if has_pods else _is_active(name, specs)
            if condition.get("status") != str(is_valid):
                self.stage.find(
                    f"queue {name} {specs[name]} is {'valid' if is_valid else 'not valid'}: {condition}"
                )
            if _is_active(name, specs):
                said = _milli_of(status.get("used", {}).get("cpu", "0"))
                if said != used[name]:
                    self.stage.find(f"queue {name} uses {used[name]} milliCPU, its status says {said}")


class ElasticQuotas(Teams):
    """Whoever gives a hundred namespaces a quota each, and changes all at once."""

    name = "quotas"
    definition = "elasticquotas"
    teams = tuple(f"t{number}" for number in range(100))
    busy = 5
    prefix = "limited-"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 6.0)

    async def act(self) -> None:
        self.weighted(
            (6, self._deploy), (2, self._change_all), (1, self._recreate_all), (2, self._delete_pod)
        )()

    def _create_all(self) -> None:
        for name in self.teams:
            if self.stage.store.find(QUOTAS, name, name) is None:
                made = {
                    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                    "kind": "ElasticQuota",
                    "spec": self._limits(),
                }
                self.stage.store.create(QUOTAS, {**made, "metadata": {"name": name, "namespace": name}})

    def _limits(self) -> dict[str, Any]:
        least = self.random.choice((0, 1, 2))
        return {"min": {"cpu": least}, "max": {"cpu": least + self.random.choice((0, 1, 4))}}

    def _change_all(self) -> None:
        quotas = self.stage.store.list(QUOTAS)
        self.tell(f"change {len(quotas)} quotas")
        for quota in quotas:
            self.stage.store.patch(
                QUOTAS, quota["metadata"]["name"], {"spec": self._limits()}, quota["metadata"]["namespace"]
            )

    def _recreate_all(self) -> None:
        quotas = self.stage.store.list(QUOTAS)
        self.tell(f"recreate {len(quotas)} quotas")
        for quota in quotas:
            self.stage.store.delete(QUOTAS, quota["metadata"]["name"], quota["metadata"]["namespace"])
        self.stage.later(self.random.choice((0.0, 1.0)), self._create_all)

    def _judge(
        self, life: Life, pod: PodInfo, node_name: str, there: Mapping[str, Mapping[str, PodInfo]]
    ) -> None:
        """No choice exceeds the max of its namespace's quota."""
        known = life.daemon.parts.cache.table.objects(_KINDS[QUOTAS]) or {}
        quota = known.get(f"{pod.namespace}/{pod.namespace}")
        if quota is None:
            return
        used = sum(_cpu(each) for each in _placed(there, pod) if each.namespace == pod.namespace)
        most = 1000 * int(quota["spec"]["max"]["cpu"])
        if used > most and _cpu(pod):
            self.stage.find(f"{pod.key} goes to {node_name}: {used} milliCPU of {most} are used", pod.uid)

    def check(self, life: Life) -> None:
        """What the server says of each quota is true."""
        used: dict[str, int] = {}
        for pod in self.stage.store.list("pods"):
            if pod["status"].get("phase") == "Running":
                namespace = pod["metadata"]["namespace"]
                used[namespace] = used.get(namespace, 0) + _asked_milli(pod)
        for quota in self.stage.store.list(QUOTAS):
            name = quota["metadata"]["namespace"]
            said = quota.get("status", {}).get("used", {}).get("cpu")
            if said is None or _milli_of(said) != used.get(name, 0):
                self.stage.find(
                    f"the quota of {name} has {used.get(name, 0)} milliCPU, its status says {said}"
                )


def _chain(namespace: str, labels: Mapping[str, str], queues: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the queue of a pod and those above it; none if it has no queue.

    The queue that its label names comes first, if that admits the pod's namespace.
    """
    named = labels.get(_QUEUE_NAME, "")
    if _is_leaf(named, queues) and queues[named].get("namespaces") in (None, [namespace]):
        chain = [named]
    elif _is_leaf(namespace, queues) and queues[namespace].get("namespaces"):
        chain = [namespace]
    else:
        return []
    while queues[chain[-1]].get("parent"):
        chain.append(queues[chain[-1]]["parent"])
    return chain


def _is_leaf(name: str, queues: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a queue is active, and no active queue has it as its parent."""
    return _is_active(name, queues) and not any(
        spec.get("parent") == name and _is_active(other, queues) for other, spec in queues.items()
    )


def _is_active(name: str, queues: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a queue's parents lead to a root."""
    passed: set[str] = set()
    while name:
        if name in passed or name not in queues:
            return False
        passed.add(name)
        name = queues[name].get("parent") or ""
    return bool(passed)


def _placed(there: Mapping[str, Mapping[str, PodInfo]], pod: PodInfo) -> Iterable[PodInfo]:
    return {**{uid: each for pods in there.values() for uid, each in pods.items()}, pod.uid: pod}.values()


def _cpu(pod: PodInfo) -> int:
    return pod.resources.requests.get("cpu", 0)


def _asked_milli(pod: Object) -> int:
    return taken_milli({**pod, "status": {}})


def _milli_of(text: Any) -> int:
    return int(text[:-1]) if str(text).endswith("m") else 1000 * int(text)
