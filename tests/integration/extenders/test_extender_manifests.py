"""manifests/examples/extender works with the rights that it requests and the certificate of the guide."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.configuration.load import parse
from scheduler.extensions.extenders import HttpExtender
from scheduler.tools.simulator.faults import streamed_lists
from scheduler.tools.simulator.server import ApiServer
from tests.integration.commands.test_extender import HEAD, extender, serving
from tests.support.builders import node, node_object, pod
from tests.support.kubectl import Kubectl
from tests.support.manifests import MANIFESTS, one, rendered

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

FOLDER = MANIFESTS / "examples" / "extender"
NAME = "custom-scheduler-extender"
ACCOUNT = f"system:serviceaccount:kube-system:{NAME}"


def arguments(objects: list[dict[str, Any]]) -> list[str]:
    (container,) = one(objects, "Deployment", NAME)["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "extender"
    return list(container["args"][1:])


async def test_the_shipped_extender_answers_with_its_own_rights_and_uses_all_of_them(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    made = extender("--config", FOLDER / "config.yaml", "--cert-dir", certificates, "--snippet")
    assert made.returncode == 0, made.stderr
    flags = [
        flag.replace("/certificates/", f"{certificates}/").replace("/config/", f"{FOLDER}/")
        for flag in arguments(rendered(FOLDER))
        if not flag.startswith("--secure-port")
    ]

    async with ApiServer(tls=True, rbac=True) as server:
        server.store.create("nodes", node_object("good"))
        server.store.create("nodes", node_object("bad", annotations={"example.com/degraded": "disk"}))
        kubectl = Kubectl(server.write_kubeconfig(tmp_path / "admin"), tmp_path)
        await kubectl("apply", "-k", str(FOLDER))
        token = (await kubectl("create", "token", NAME, "--namespace", "kube-system")).strip()
        # Else a first list comes in a watch, and nobody lists.
        server.faults.refuse(400, streamed_lists)
        async with serving(server, tmp_path, *flags, token=token) as served:
            (reported,) = parse(HEAD + made.stdout).settings.extenders
            at = msgspec.structs.replace(reported, url_prefix=f"https://127.0.0.1:{served.port}")
            client = HttpExtender(at, "extenders[0]")
            answer = await client.filter(pod("web"), [node("good"), node("bad")])
            assert answer.node_names == ("good",)
            assert answer.unresolvable == {"bad": "node(s) had degraded hardware"}
            await client.close()
        assert server.grants.refused_to(ACCOUNT) == []
        assert server.grants.unused(f"ClusterRole/{NAME}", ACCOUNT) == []


def test_the_selectors_of_the_extender_match_its_pods() -> None:
    objects = rendered(FOLDER)
    labels = one(objects, "Deployment", NAME)["spec"]["template"]["metadata"]["labels"].items()
    assert one(objects, "Service", NAME)["spec"]["selector"].items() <= labels
    assert one(objects, "NetworkPolicy", NAME)["spec"]["podSelector"]["matchLabels"].items() <= labels


def test_its_plugin_is_that_of_the_examples() -> None:
    shipped = MANIFESTS / "examples" / "plugins" / "healthy_hardware.py"
    assert (FOLDER / "healthy_hardware.py").read_text() == shipped.read_text()
