"""What pods request follows the emulated version, wherever pods enter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler.configuration.feature_gates import features_of
from scheduler.daemon.app.needs import PodDecoder, together
from scheduler.daemon.recording.recorded_objects import packed, unpacked_pod
from scheduler.framework.interface import Needs
from scheduler.kube.client.store import Store
from scheduler.kube.client.wire import decode_identity
from scheduler.loop_work import run_to_end
from scheduler.objects import pod_affinity
from scheduler.objects.pod import PodInfo
from scheduler.objects.resources import PodRules
from scheduler.objects.v1 import Pod
from tests.support.builders import pod, pod_object
from tests.support.counted_labels import calls_of

WHOLE = PodRules(as_a_whole=True)
STATUS = {
    "containerStatuses": [
        {"name": "x", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
        {"name": "y", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}},
    ]
}
CONTAINERS = [
    {"name": "x", "resources": {"requests": {"cpu": "3"}}},
    {"name": "y", "resources": {"requests": {"cpu": "1"}}},
]


@pytest.mark.parametrize(
    ("version", "gates", "rules"),
    [
        ("1.34", {}, PodRules(pod_level_resizes=False)),
        ("1.34", {"InPlacePodVerticalScaling": False}, PodRules(resizes=False, pod_level_resizes=False)),
        ("1.36", {}, PodRules()),
        ("1.36", {"DRANodeAllocatableResources": True}, PodRules(claims=True)),
        ("1.37", {}, WHOLE),
        ("1.37", {"PodLevelResources": False}, PodRules(pod_level=False, as_a_whole=True)),
    ],
)
def test_the_version_and_its_gates_decide_what_pods_request(
    version: str, gates: dict[str, bool], rules: PodRules
):
    assert PodRules.of(features_of(gates, version).enabled) == rules


def test_combined_needs_keep_the_rules():
    assert together([Needs(pod_rules=WHOLE), Needs(pod_rules=WHOLE)]).pod_rules == WHOLE


@pytest.mark.parametrize(("rules", "cpu"), [(PodRules(), 6000), (WHOLE, 4000)])
def test_pods_from_the_api_server_are_decoded_by_the_rules(rules: PodRules, cpu: int):
    raw = msgspec.json.encode(pod_object("p", node="n", containers=CONTAINERS, status=STATUS))

    assert PodDecoder(Needs(pod_rules=rules))(raw).resources.taken["cpu"] == cpu


@pytest.mark.parametrize(
    "decoded", [None, msgspec.json.decode(msgspec.json.encode(pod_object("other")), type=Pod)]
)
def test_a_pod_that_was_decoded_with_its_line_is_not_decoded_again(decoded: Pod | None):
    handled: list[PodInfo] = []
    handler: Any = SimpleNamespace(on_add=handled.append)
    store = Store("Pod", PodDecoder(Needs()), handler)
    raw = msgspec.json.encode(pod_object("p"))

    store.put(decode_identity(raw), raw, decoded)

    (found,) = handled
    assert (found.name, found.raw) == ("p" if decoded is None else "other", raw)


@pytest.mark.parametrize("n_terms", [1, 20])
@pytest.mark.parametrize("node", ["", "n"])
def test_terms_of_a_pod_decoded_in_steps_are_parsed_in_a_step_of_their_own(
    monkeypatch: pytest.MonkeyPatch, node: str, n_terms: int
):
    parsed = calls_of(monkeypatch, pod_affinity, "read_label_selector")
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {node + "app": f"{n}"}}}
        for n in range(n_terms)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    raw = msgspec.json.encode(pod_object("p", node=node, affinity={"podAntiAffinity": required}))
    decoder = PodDecoder(Needs())
    steps = decoder.in_steps(raw)

    next(steps)
    assert not parsed
    for _ in range(n_terms):
        next(steps)
    assert len(parsed) == n_terms
    parsed.clear()
    found = decoder(raw, run_to_end(steps))
    assert found.affinity_terms == decoder(raw).affinity_terms
    assert found.affinity_terms.count == n_terms
    assert not parsed


def test_a_recording_keeps_what_a_pending_pod_requests_by_other_rules():
    rules = PodRules(pod_level=False)
    waiting = pod("p", containers=CONTAINERS, resources={"requests": {"cpu": "9"}}).under(rules)

    again = unpacked_pod(msgspec.json.decode(msgspec.json.encode(packed(waiting))))

    assert again.resources == waiting.resources
    assert again.resources.requests["cpu"] == 4000
