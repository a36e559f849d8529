"""Why a pod has to wait for its claims before Filter, and which events end the wait."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.dynamic_resources.plugin import (
    DynamicResources,
    claims_waited_for,
    keys_of_claim_change,
    reads_of_claims,
)
from scheduler.framework import SKIP, ActionType, Code, EventResource, Status
from scheduler.testing.devices import (
    CLASS,
    allocation,
    claims_of,
    device_class,
    exactly,
    first_available,
    resource_claim,
)
from tests.support.builders import node, pod
from tests.support.counted_labels import lines_run
from tests.unit.plugins.dynamic_resources.kit import Kit
from tests.unit.plugins.plugin_calls import requeues

WEB = pod("web", resourceClaims=claims_of("one"))
OTHER = pod("other")
TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "template"}]
GENERATED = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "web-gpu-xyz"}]}
UNNEEDED = {"resourceClaimStatuses": [{"name": "gpu"}]}


def refused(why: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (why,))


@pytest.mark.parametrize(
    ("each", "claims", "why"),
    [
        pytest.param(WEB, [], 'could not find ResourceClaim "default/one"', id="not there"),
        pytest.param(WEB, [resource_claim("one", namespace="elsewhere")], 'could not find ResourceClaim "default/one"', id="in another namespace"),
        pytest.param(WEB, [resource_claim("one", deleted=True)], 'resourceclaim "one" is being deleted', id="being deleted"),
        pytest.param(pod("web", resourceClaims=TEMPLATE), [], 'pod "default/web": ResourceClaim not created yet', id="not created yet"),
        pytest.param(
            pod("web", resourceClaims=TEMPLATE, status=GENERATED), [resource_claim("web-gpu-xyz", owner=OTHER)],
            "ResourceClaim default/web-gpu-xyz was not created for Pod default/web (Pod is not owner)", id="created for another pod",
        ),
        pytest.param(
            pod("web", resourceClaims=TEMPLATE, status=GENERATED), [resource_claim("web-gpu-xyz")],
            "ResourceClaim default/web-gpu-xyz was not created for Pod default/web (Pod is not owner)", id="created without an owner",
        ),
        pytest.param(
            pod("web", resourceClaims=[{"name": "gpu"}]), [],
            'pod "default/web", spec.resourceClaim "gpu": none of the supported fields are set', id="neither name nor template",
        ),
    ],
)  # fmt: skip
def test_a_pod_is_gated_until_its_claims_exist(each: Any, claims: list[Any], why: str):
    kit = Kit(*claims)

    assert kit.plugin.pre_enqueue(each) == refused(why)
    assert kit.begin(each).pre_filter == refused(why)


@pytest.mark.parametrize(
    ("each", "claims"),
    [
        pytest.param(pod("web"), [], id="no claims"),
        pytest.param(WEB, [resource_claim("one", owner=OTHER)], id="owned by another pod, used by its name"),
        pytest.param(pod("web", resourceClaims=TEMPLATE, status=UNNEEDED), [], id="found unnecessary"),
        pytest.param(
            pod("web", resourceClaims=TEMPLATE, status=GENERATED),
            [resource_claim("web-gpu-xyz", owner=pod("web"))],
            id="created for it",
        ),
    ],
)
def test_a_pod_with_existing_claims_may_be_tried(each: Any, claims: list[Any]):
    assert Kit(*claims).plugin.pre_enqueue(each) is None


@pytest.mark.parametrize("each", [pod("web"), pod("web", resourceClaims=TEMPLATE, status=UNNEEDED)])
def test_a_pod_without_claims_is_skipped(each: Any):
    attempt = Kit(node("n")).begin(each)

    assert attempt.pre_filter is SKIP
    assert attempt.filter()["n"].code is Code.SUCCESS
    assert attempt.scores() == {"n": 0}
    assert attempt.reserve("n") is None
    assert attempt.kit.plugin.pre_bind_pre_flight(attempt.state, each, "n") is SKIP
    assert attempt.post_filter() == Status.unschedulable("no new claims to deallocate")


def test_post_filter_without_state_fails():
    kit = Kit(node("n"))
    attempt = kit.begin(WEB)
    attempt.state.delete("DynamicResources")

    assert attempt.post_filter() == Status.failed("not found")


@pytest.mark.parametrize(
    ("requests", "status"),
    [
        pytest.param([exactly()], refused("request r0: device class gpu does not exist"), id="no class"),
        pytest.param([first_available("r1", "fast", CLASS)], refused("request r1/s0: device class fast does not exist"), id="no class of an alternative"),
        pytest.param([exactly(device_class="")], Status.failed("request r0: unsupported request type"), id="class without a name"),
        pytest.param([{"name": "r0"}], refused("resource claim default/one, request r0: unknown request type"), id="a request for nothing known"),
    ],
)  # fmt: skip
def test_an_impossible_claim_is_rejected_at_once(requests: list[Any], status: Status):
    attempt = Kit(node("n"), resource_claim("one", *requests)).begin(WEB)

    assert attempt.pre_filter == status
    assert attempt.post_filter() == Status.unschedulable("no new claims to deallocate")


def test_the_classes_of_an_allocated_claim_may_be_deleted():
    claim = resource_claim("one", allocated=allocation("gpu-0", node="n"))

    assert Kit(node("n"), claim).begin(WEB).pre_filter is None


def test_an_invalid_selector_fails_the_attempt():
    broken = allocation("gpu-0")
    term = {"matchExpressions": [{"key": "zone", "operator": "Near"}]}
    broken["nodeSelector"] = {"nodeSelectorTerms": [term]}

    status = Kit(node("n"), resource_claim("one", allocated=broken)).begin(WEB).pre_filter

    assert status is not None
    assert status.code is Code.ERROR


# Hints.


GIVEN = allocation("gpu-0", node="n")


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(None, resource_claim("one"), True, id="its claim is created"),
        pytest.param(None, resource_claim("two"), False, id="another claim is created"),
        pytest.param(resource_claim("one"), resource_claim("one", allocated=GIVEN), True, id="it was allocated"),
        pytest.param(resource_claim("two"), resource_claim("two", allocated=GIVEN), False, id="another was allocated"),
        pytest.param(resource_claim("two", allocated=GIVEN), resource_claim("two"), True, id="another gave its devices back"),
        pytest.param(resource_claim("one"), resource_claim("one", finalizers=["x"]), False, id="its status is as before"),
        pytest.param(resource_claim("one", allocated=GIVEN, reserved_for=[OTHER]), resource_claim("one", allocated=GIVEN), True, id="another pod left it"),
        pytest.param(resource_claim("one"), {**resource_claim("one"), "status": {"reservedFor": [], "devices": None}}, False, id="nothing, written in another way"),
        pytest.param(resource_claim("one", uid="before"), resource_claim("one", uid="other"), False, id="one of its name that is not there"),
    ],
)  # fmt: skip
def test_a_claim_requeues_its_pods_and_released_devices_requeue_all(old: Any, new: Any, helps: bool):
    kit = Kit(resource_claim("one"))

    assert requeues(kit.plugin, EventResource.RESOURCE_CLAIM, WEB, old, new) is helps


def test_released_devices_do_not_requeue_a_pod_whose_own_claims_are_missing():
    plugin = Kit(resource_claim("two")).plugin
    old, new = resource_claim("two", allocated=GIVEN), resource_claim("two")

    assert not requeues(plugin, EventResource.RESOURCE_CLAIM, WEB, old, new)


MANY = [f"claim-{number}" for number in range(1000)]


@pytest.mark.parametrize(
    ("old", "new", "helps"),
    [
        pytest.param(resource_claim("two"), resource_claim("two", allocated=GIVEN), False, id="another was allocated"),
        pytest.param(resource_claim(MANY[-1]), resource_claim(MANY[-1], finalizers=["x"]), False, id="its status is as before"),
        pytest.param(resource_claim(MANY[-1]), resource_claim(MANY[-1], allocated=GIVEN), True, id="one was allocated"),
        pytest.param(resource_claim("two", allocated=GIVEN), resource_claim("two"), True, id="devices became free"),
    ],
)  # fmt: skip
def test_a_change_of_a_claim_costs_as_much_for_a_pod_with_1000_claims(old: Any, new: Any, helps: bool):
    kit, many = Kit(*map(resource_claim, MANY)), pod("web", resourceClaims=claims_of(*MANY))
    assert len(many.resource_claim_keys) == len(MANY), "read once for each version of the pod"
    answers: list[bool] = []

    lines = lines_run(
        lambda: answers.append(requeues(kit.plugin, EventResource.RESOURCE_CLAIM, many, old, new))
    )

    assert answers == [helps]
    assert lines < 500


def test_a_deleted_pod_with_1000_claims_requeues_pods_without_reading_them():
    kit, gone = Kit(*map(resource_claim, MANY)), pod("gone", resourceClaims=claims_of(*MANY))
    answers: list[bool] = []

    lines = lines_run(
        lambda: answers.append(requeues(kit.plugin, EventResource.ASSIGNED_POD, WEB, gone, None))
    )

    assert answers == [True]
    assert lines < 500


@pytest.mark.parametrize(
    ("new", "helps"),
    [
        pytest.param(pod("web", resourceClaims=TEMPLATE, status=GENERATED), True, id="its claim is there"),
        pytest.param(pod("web", resourceClaims=TEMPLATE), False, id="its claim is not there"),
        pytest.param(pod("other", resourceClaims=TEMPLATE, status=UNNEEDED), False, id="another pod"),
    ],
)
def test_a_pod_status_that_names_its_claims_requeues_the_pod(new: Any, helps: bool):
    plugin = Kit(resource_claim("web-gpu-xyz", owner=pod("web"))).plugin
    waiting = pod("web", resourceClaims=TEMPLATE)

    assert requeues(plugin, EventResource.POD, waiting, waiting, new) is helps


def test_it_registers_for_all_events_that_add_devices():
    listened = {each.event.resource: each.event.action for each in Kit().plugin.events()}

    changed = ActionType.ADD | ActionType.UPDATE
    assert listened == {
        EventResource.NODE: ActionType.ADD
        | ActionType.UPDATE_NODE_LABEL
        | ActionType.UPDATE_NODE_ALLOCATABLE,
        EventResource.POD: ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
        EventResource.ASSIGNED_POD: ActionType.DELETE,
        EventResource.RESOURCE_CLAIM: changed,
        EventResource.RESOURCE_SLICE: changed,
        EventResource.DEVICE_CLASS: changed,
    }


# Pods without claims cost nothing.


def test_pods_without_devices_are_identical():
    kit = Kit(device_class(CLASS, extended_resource="example.com/gpu"))
    plain, on_disk = pod("web", cpu="1"), pod("db", requests={"example.com/disk": 1})

    assert kit.plugin.signature(plain) == kit.plugin.signature(on_disk) == ()
    assert kit.plugin.signature(WEB) is None
    assert kit.plugin.signature(pod("ai", requests={"example.com/gpu": 1})) is None
    assert kit.plugin.signature(pod("ai", requests={"deviceclass.resource.kubernetes.io/gpu": 1})) is None
    assert kit.plugin.signature(pod("ai", requests={"example.com/gpu": 0})) == ()


# Arguments.


@pytest.mark.parametrize(
    ("args", "found"),
    [
        pytest.param({}, [], id="defaults"),
        pytest.param({"filterTimeout": "0s", "bindingTimeout": "1s"}, [], id="the least"),
        pytest.param({"filterTimeout": "-1ns"}, ["filterTimeout: must be zero or positive, was -1ns"], id="a search that ended before it began"),
        pytest.param({"bindingTimeout": "999ms"}, ["bindingTimeout: must be at least 1 second, was 999ms"], id="less than a second"),
    ],
)  # fmt: skip
def test_arguments(args: dict[str, str], found: list[str]):
    from scheduler.configuration.profile_plugins import decode_args
    from scheduler.errors import ConfigurationError

    try:
        decode_args(DynamicResources.Args, args, plugin="DynamicResources", path="")
        reported = []
    except ConfigurationError as error:
        reported = [str(each) for each in error.errors]
    assert [each.removeprefix(".") for each in reported] == found


def test_finding_twice_as_many_claims_of_a_pod_needs_twice_the_work():
    def lines(number: int) -> int:
        wanted = [{"name": f"g{each}", "resourceClaimTemplateName": "template"} for each in range(number)]
        made = [{"name": f"g{each}", "resourceClaimName": f"web-g{each}"} for each in range(number)]
        web = pod("web", resourceClaims=wanted, status={"resourceClaimStatuses": made})
        kit = Kit(*(resource_claim(f"web-g{each}", owner=web) for each in range(number)))
        assert kit.plugin.pre_enqueue(web) is None
        return lines_run(lambda: kit.plugin.pre_enqueue(web))

    assert lines(200) < 2.5 * lines(100)


NAMED_TWICE = pod("b", resourceClaims=claims_of("one"))
OF_TEMPLATE = pod("c", resourceClaims=TEMPLATE, status=GENERATED)
UNNAMED = pod("d", resourceClaims=TEMPLATE)
NOT_THE_OWNER = pod("e", resourceClaims=TEMPLATE, status=GENERATED)
FREE, TAKEN = (resource_claim("one", allocated=taken) for taken in (None, allocation("gpu-0", node="n")))
ITS_OWN = resource_claim("web-gpu-xyz", owner=OF_TEMPLATE)
CLAIM_CHANGES = [(None, FREE), (None, ITS_OWN), (FREE, TAKEN), (TAKEN, FREE), (FREE, FREE)]


@pytest.mark.parametrize(("old", "new"), CLAIM_CHANGES)
def test_keys_exclude_only_pods_that_the_change_of_a_claim_does_not_help(old: Any, new: Any):
    results: dict[Any, bool] = {}
    keys = keys_of_claim_change(old, new)
    for each in (pod("none"), WEB, NAMED_TWICE, OF_TEMPLATE, UNNAMED, NOT_THE_OWNER):
        result = requeues(Kit(FREE, ITS_OWN).plugin, EventResource.RESOURCE_CLAIM, each, old, new)
        is_touched = keys is None or set(keys) & set(claims_waited_for(each))

        assert is_touched or not result, each
        assert results.setdefault(reads_of_claims(each), result) is result
    assert len(results) == 5, "pods with the same named claim are asked once"


def test_a_change_of_one_claim_touches_only_its_pods():
    assert keys_of_claim_change(FREE, TAKEN) == ("default/one",)
    assert keys_of_claim_change(FREE, FREE) == ()
