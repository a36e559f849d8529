"""`kubectl why` as a process, with a daemon behind a forwarded port and without one: real time, real sockets."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scheduler.daemon.app.leader import ASKING_ACCOUNT
from scheduler.tools.simulator.access.rbac import User
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program, run_command
from tests.support.kubectl import Kubectl, Said
from tests.support.manifests import MANIFESTS, ROOT
from tests.support.ports import free_port
from tests.support.processes import started, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

LEADER = "custom-scheduler-7d9f-x2x5z"
ANN = {"ann-token": User("ann", groups=("system:authenticated",))}


class World:
    """An API server with RBAC over TLS, `why` against it, and perhaps a daemon that is one of its pods.

    Attributes:
        server: its objects.
        kubeconfig: of an administrator.
    """

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.kubeconfig = server.write_kubeconfig(folder / "admin.config")

    def add(self, resource: str, *objects: dict[str, Any]) -> None:
        for obj in objects:
            self.server.store.create(resource, obj)

    def bind(self, kind: str, role: str, user: str, **place: str) -> None:
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": user, **place},
            "roleRef": {"kind": kind, "name": role, "apiGroup": group},
            "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
        }
        self.add(f"{kind.lower()}bindings.{group}", binding)

    def may_be_asked(self) -> None:
        """Apply what docs/why.md says."""
        for obj in yaml.safe_load_all((MANIFESTS / "why" / "rbac.yaml").read_text()):
            if self.server.store.is_namespaced(obj):
                obj["metadata"]["namespace"] = "kube-system"
            self.server.store.apply(obj)

    @asynccontextmanager
    async def daemon(self, *flags: str) -> AsyncIterator[None]:
        """Run a daemon that holds the lease as a pod; the port that is forwarded to that pod is its."""
        port = free_port()
        self.server.ports[f"kube-system/{LEADER}"] = port
        self.add("pods", pod_object(LEADER, namespace="kube-system", node="n1", scheduler_name="other"))
        command = ("run", "--kubeconfig", str(self.kubeconfig), "--secure-port", str(port))
        async with started(forked_program(), *command, "--no-leader-elect", *flags):
            lease = {
                "metadata": {"name": "custom-scheduler", "namespace": "kube-system"},
                "spec": {"holderIdentity": f"{LEADER}_0f3a"},
            }
            self.add("leases.coordination.k8s.io", lease)
            yield

    async def condition(self, name: str) -> bool:
        return bool(self.server.store.get("pods", name).get("status", {}).get("conditions"))

    def _kubeconfig_of(self, user: str) -> Path:
        if not user:
            return self.kubeconfig
        return self.server.write_kubeconfig(self.folder / user, token=f"{user}-token", user=user)

    async def start(self, *arguments: str, user: str = "") -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            forked_program(), "why", "--kubeconfig", str(self._kubeconfig_of(user)), *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def why(self, *arguments: str, user: str = "", stdin: str = "") -> Said:
        words = ("why", "--kubeconfig", self._kubeconfig_of(user), *arguments)
        done = await asyncio.to_thread(run_command, *words, stdin=stdin.encode())
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def told(self, *arguments: str, user: str = "", stdin: str = "") -> Any:
        """What programs are told; nothing may have gone wrong."""
        said = await self.why(*arguments, "-o", "json", user=user, stdin=stdin)
        assert said.code == 0, said.err
        return json.loads(said.out)


@asynccontextmanager
async def in_a_world(folder: Path) -> AsyncIterator[World]:
    async with ApiServer(tls=True, rbac=True, users=ANN, kubelet=True, controllers=True) as server:
        world = World(server, folder)
        world.add("nodes", node_object("n1", cpu="4"), node_object("n2", cpu="2"), node_object("n3", cpu="8"))
        yield world


async def test_the_leading_daemon_is_reached_through_port_forwarding(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.may_be_asked()
        async with world.daemon():
            world.add("pods", pod_object("big", cpu="99"), pod_object("other", cpu="1", scheduler_name="x"))
            await until(lambda: world.condition("big"))

            said = await world.why("big")
            assert (said.code, said.err) == (0, "")
            assert f"From pod kube-system/{LEADER}" in said.out
            assert "is in the queue (unschedulable)" in said.out

            reported = await world.told("pod/big", "--node", "n2")
            assert reported["decidedBy"] == f"pod kube-system/{LEADER}"
            assert (reported["attempt"]["number"], [*reported["attempt"]["nodes"]]) == (1, ["n2"])

            other = await world.told("other")
            assert other["decidedBy"] == "kube-scheduler's default plugins", "it is not the daemon's"
            assert other["attempt"]["result"] == "schedulable"
            assert other["verdict"].startswith(
                "Pod default/other has schedulerName x, which this scheduler does not serve; its profiles are "
                "custom-scheduler. Pod default/other fits on 3 of 3 nodes; best: "
            )

            shown = [request for request in world.server.requests if request.path.endswith("/tokenreviews")]
            assert shown
            own = yaml.safe_load(world.kubeconfig.read_text())["users"][0]["user"]["token"]
            assert own
            assert not any(own.encode() in request.body for request in shown), "the user's own is never shown"


async def test_the_daemon_explains_a_waiting_group_and_the_command_does_so_without_one(
    tmp_path: Path,
) -> None:
    async with in_a_world(tmp_path) as world:
        world.may_be_asked()
        policy = {"gang": {"minCount": 3}}
        world.add(
            "podgroups.scheduling.k8s.io",
            {"metadata": {"name": "train"}, "spec": {"schedulingPolicy": policy}},
        )
        async with world.daemon():
            for number in range(3):
                world.add(
                    "pods", pod_object(f"train-{number}", cpu="5", scheduling_group={"podGroupName": "train"})
                )
            await until(lambda: world.condition("train-0"))

            said = await world.why("--group", "train")
            assert (said.code, said.err) == (0, "")
            assert f"From pod kube-system/{LEADER}" in said.out
            assert "group default/train (minCount 3): unschedulable, 1 of 3 members fit" in said.out
            member = await world.why("train-0")
            assert "It waits for its group default/train (minCount 3)" in " ".join(member.out.split())

            asked, decided = (
                await world.told("--group", "train"),
                await world.told("--group", "train", "--offline"),
            )
            assert asked["decidedBy"] == f"pod kube-system/{LEADER}"
            assert decided["decidedBy"] == "kube-scheduler's default plugins"
            [group], [offline] = asked["groups"], decided["groups"]
            assert (
                (group["result"], group["fits"])
                == (offline["result"], offline["fits"])
                == ("unschedulable", 1)
            )

        nobody = await world.why("--group", "nobody")
        assert nobody.code == 1
        assert "there is no pending pod of group default/nobody" in nobody.err


async def test_the_command_needs_only_the_rights_of_the_manifests(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.may_be_asked()
        async with world.daemon():
            world.add("pods", pod_object("big", cpu="99"))
            await until(lambda: world.condition("big"))
            assert "forbidden" in (await world.why("big", user="ann")).err

            world.bind("Role", "custom-scheduler-ask", "ann", namespace="kube-system")
            world.bind("ClusterRole", "custom-scheduler-decide", "ann")

            asked = await world.why("big", user="ann")
            decided = await world.why("big", "--offline", user="ann")
            assert (asked.code, asked.err, decided.code, decided.err) == (0, "", 0, "")
            assert "From pod" in asked.out
            assert "Evaluated now with" in decided.out
            refused = await world.why("-f", "-", user="ann", stdin=json.dumps(pod_object("new")))
            assert 'User "ann" cannot create resource "pods"' in refused.err
            assert "1 of 1 pods would start now" in refused.out


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param("", "lease kube-system/custom-scheduler is not there", id="no lease"),
        pytest.param("lease", "is no pod of kube-system", id="held by no pod"),
        pytest.param("pod", f"no token of ServiceAccount kube-system/{ASKING_ACCOUNT}", id="no account"),
        pytest.param("account", "the API server answered 501", id="no way to the pod"),
        pytest.param("nobody", "error forwarding port", id="no listener"),
    ],
)
async def test_without_a_daemon_it_gives_the_reason_and_evaluates_itself(
    tmp_path: Path, prepare: str, reason: str
) -> None:
    steps = ["lease", "pod", "account", "nobody"]

    async with in_a_world(tmp_path) as world:
        done = steps[: steps.index(prepare) + 1] if prepare else []
        if "lease" in done:
            metadata = {"name": "custom-scheduler", "namespace": "kube-system"}
            world.add(
                "leases.coordination.k8s.io",
                {"metadata": metadata, "spec": {"holderIdentity": f"{LEADER}_0f3a"}},
            )
        if "pod" in done:
            world.add("pods", pod_object(LEADER, namespace="kube-system", scheduler_name="other"))
        if "account" in done:
            world.may_be_asked()
        if "nobody" in done:
            world.server.ports[f"kube-system/{LEADER}"] = free_port()
        world.add("pods", pod_object("web", cpu="3", scheduler_name="default-scheduler"))

        said = await world.why("web")

        assert said.code == 0
        assert reason in said.err
        assert said.out.startswith(
            "No scheduler reported about pod default/web: does one serve its schedulerName default-scheduler? "
            "Pod default/web fits on 2 of 3 nodes; best: "
        )


async def test_a_misspelled_scheduler_name_is_named_with_a_similar_one(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.add("pods", pod_object("runs", node="n1"), pod_object("web", scheduler_name="custom-schedular"))

        found = await world.why("web", "--offline")
        assert (
            'schedulerName custom-schedular, did you mean "custom-scheduler"? Pod default/web fits'
            in found.out
        )


async def test_a_watch_prints_changes_until_the_pod_is_on_a_node(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.may_be_asked()
        async with world.daemon():
            world.add("pods", pod_object("big", cpu="16"))
            await until(lambda: world.condition("big"))
            watching = await world.start("big", "--watch", "--node", "n1")
            assert watching.stdout is not None
            async with asyncio.timeout(60):
                first = await watching.stdout.readuntil(b"Rejected by")
                world.add("nodes", node_object("n4", cpu="32"))
                rest = await watching.stdout.read()

            assert b"n1 does not fit default/big: Insufficient cpu" in first
            assert rest.count(b"n1 does not fit default/big: Insufficient cpu") == 1, (
                "told anew as it was tried anew"
            )
            assert await watching.wait() == 0


async def test_pending_pods_are_listed_by_cause(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: no."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        for name in ("a", "b"):
            world.add("pods", pod_object(name, cpu="99", nodeSelector={"kubernetes.io/hostname": "n3"}))
            world.server.store.patch(
                "pods", name, {"status": {"conditions": [condition]}}, subresource="status"
            )
        world.server.store.create("namespaces", {"metadata": {"name": "shop"}})
        world.add("pods", pod_object("new", namespace="shop", scheduler_name="default-scheduler"))
        world.add("pods", pod_object("runs", node="n1"))

        said = await world.why("--pending")
        assert said.out.splitlines()[1:6] == [
            "  Pod default/a does not fit on any of 3 nodes. It would fit if: its cpu request were 8 or less (now 99).",
            "  2 of 3 nodes: Insufficient cpu",
            "  1 of 3 nodes: node(s) were unschedulable",
            "  Reason codes: NodeAffinityMismatch (2 nodes), InsufficientCPU (1 node), PreemptionNotHelpful (3 nodes)",
            "  default/a, default/b",
        ]
        (shop,) = await world.told("--pending", "-n", "shop")
        assert (shop["scheduler"], shop["pods"]) == ("default-scheduler", ["shop/new"])
        assert next(iter(shop)) == "verdict"
        assert "does one serve its schedulerName default-scheduler? Pod shop/new fits on" in shop["verdict"]


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: urgent
      containers:
      - {name: c, image: nginx, resources: {requests: {cpu: "4"}}}
"""


async def test_objects_that_do_not_exist_yet_are_evaluated_with_their_victims(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.add("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "urgent"}, "value": 1000})
        world.add("pods", pod_object("low", cpu="3", node="n1"))
        (web,) = await world.told("-f", "-", stdin=DEPLOYMENT)
        (few,) = await world.told("-f", "-", "--replicas", "2", stdin=DEPLOYMENT)
        said = await world.why("-f", "-", "-n", "kube-system", stdin=DEPLOYMENT)

        assert (web["pods"], web["starting"], web["nodes"]) == (4, 3, {"n3": 2, "n1": 1})
        assert [(each["pod"], each["node"]) for each in web["victims"]] == [("default/low", "n1")]
        (waiting,) = web["waiting"]
        assert waiting["pods"] == 1
        assert waiting["message"].startswith("0/3 nodes are available: 3 Insufficient cpu.")
        assert (few["pods"], few["starting"], few["victims"]) == (2, 2, [])
        assert "Deployment kube-system/web: 3 of 4 pods would start now" in said.out
        assert "pods that would be evicted: 1: default/low (n1)" in said.out
        written = [request for request in world.server.requests if request.method != "GET"]
        assert written
        assert all(request.query == {"dryRun": "All"} for request in written)


async def test_pods_that_do_not_exist_yet_are_evaluated_by_a_daemon_that_answers(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.may_be_asked()
        world.bind("Role", "custom-scheduler-ask", "ann", namespace="kube-system")
        pod, other = pod_object("new", cpu="4"), pod_object("new", scheduler_name="default-scheduler")
        async with world.daemon("--whatif"):
            world.add("pods", pod_object("runs", cpu="2"))
            await until(lambda: world.condition("runs"))

            asked = await world.why("-f", "-", "--replicas", "4", user="ann", stdin=json.dumps(pod))
            assert (asked.code, asked.out.splitlines()[0]) == (0, f"From pod kube-system/{LEADER}:"), (
                asked.err
            )
            assert "Pod default/new: 2 of 4 pods would start now" in asked.out
            assert "no daemon answers" not in asked.err
            decided = await world.why("-f", "-", "--offline", stdin=json.dumps(pod))
            assert decided.out.startswith("Evaluated now with kube-scheduler's default plugins:")
            await fewer_and_more_nodes(world)
            unserved = await world.why("-f", "-", stdin=json.dumps(other))
            assert "has schedulerName default-scheduler, which this scheduler does not serve" in unserved.err
            assert unserved.out.startswith("Evaluated now with kube-scheduler's default plugins:")


async def fewer_and_more_nodes(world: World) -> None:
    """The daemon and the command itself give the same answers about removed and added nodes."""
    flags = ("-f", "-", "--replicas", "4", "--remove-node", "n3", "--add-nodes", "3:n1")
    pod = json.dumps(pod_object("new", cpu="4"))
    asked, decided = await world.told(*flags, stdin=pod), await world.told(*flags, "--offline", stdin=pod)
    for answer in (asked, decided):
        assert (answer["removed"]["nodes"], answer["removed"]["ended"]) == (["n3"], ["default/runs"])
        assert (answer["added"]["helps"], answer["added"]["needed"]) == (3, 3)
    drained = await world.why("--remove-node", "n3")
    assert "Without n3, 0 pods would be created again." in drained.out
    node = json.dumps({"apiVersion": "v1", "kind": "List", "items": [json.loads(pod), TEMPLATE]})
    added = await world.why("-f", "-", "--replicas", "4", "--add-nodes", "5", stdin=node)
    assert "That takes 1 node like large more." in added.out, added.err


TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "large"},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
}


async def test_a_refusal_by_the_api_server_is_printed_in_its_own_text(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        (web,) = await world.told("-f", "-", stdin=DEPLOYMENT)
        assert web["problem"].startswith("PriorityClass urgent is not known: add it to the objects")

        (other,) = await world.told(
            "-f", "-", "-n", "nowhere", stdin=json.dumps(pod_object("p", namespace=""))
        )
        assert other["problem"] == 'namespaces "nowhere" not found'


async def test_kubectl_runs_it_as_its_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_a_world(tmp_path) as world:
        plugin = tmp_path / "kubectl-why"
        plugin.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from scheduler.cli.command import kubectl_why\nkubectl_why()\n"
        )
        plugin.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        world.server.store.create("namespaces", {"metadata": {"name": "shop"}})
        world.add("pods", pod_object("web", namespace="shop", scheduler_name="default-scheduler"))
        kubectl = Kubectl(world.kubeconfig, tmp_path)
        await kubectl("config", "set-context", "--current", "--namespace", "shop")

        assert "shop/web fits on 3 of 3 nodes; best: " in await kubectl("why", "web")
        nothing = await kubectl.run("why", "--replicas", "2")
        assert nothing.code == 2
        assert nothing.err.startswith("Usage: kubectl why [OPTIONS] [POD]")
        assert "there is no pod shop/nobody" in await kubectl.refused("why", "nobody")


async def test_a_pod_on_a_node_is_shown_with_its_current_choice(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.add("pods", pod_object("runs", cpu="2", node="n2", scheduler_name="default-scheduler"))

        reported = await world.told("runs", "--offline")

        assert (reported["node"], reported["attempt"]) == ("n2", None)
        assert reported["now"]["node"] == "n2"
        assert reported["now"]["best"] == ["n3"]
        assert reported["now"]["nodes"]["n2"]["feasible"], "it leaves the room it has"


async def test_it_shows_what_autoscalers_do_for_a_pending_pod(tmp_path: Path) -> None:
    async with in_a_world(tmp_path) as world:
        world.add("pods", pod_object("big", cpu="99"), pod_object("next", cpu="99"))
        nominated = {"status": {"nominatedNodeName": "coming"}}
        big = world.server.store.patch("pods", "big", nominated, subresource="status")
        for number, (component, reason, message) in enumerate(
            [
                ("cluster-autoscaler", "NotTriggerScaleUp", "pod didn't trigger scale-up"),
                ("karpenter", "Nominated", "Pod should schedule on: nodeclaim/spot-x7"),
                ("custom-scheduler", "FailedScheduling", "0/3 nodes are available"),
            ]
        ):
            world.add(
                "events",
                {
                    "metadata": {"name": f"big.{number}", "namespace": "default"},
                    "involvedObject": {
                        "kind": "Pod",
                        "namespace": "default",
                        "name": "big",
                        "uid": big["metadata"]["uid"],
                    },
                    "reason": reason,
                    "message": message,
                    "source": {"component": component},
                    "lastTimestamp": f"2026-01-01T00:00:0{number}Z",
                },
            )

        said = await world.why("big", "--offline")
        assert (said.code, said.err) == (0, "")
        assert (
            "The pod is nominated to node coming, which does not exist: it is still to come, or was deleted.\n"
            "Karpenter adds a node, or expects one to fit (Nominated, 2026-01-01T00:00:01Z): "
            "Pod should schedule on: nodeclaim/spot-x7\n"
        ) in said.out

        told = await world.told("big", "--offline")
        assert (told["missingNode"], told["autoscaler"]["component"]) == ("coming", "karpenter")
        other = await world.told("next", "--offline")
        assert (other["missingNode"], other["autoscaler"]) == (None, None)
