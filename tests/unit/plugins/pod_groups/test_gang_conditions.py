"""The condition of a group's scheduling: written when it changes, and never again once it is True."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from plugins.pod_groups.gang_scheduling import GroupConditions
from plugins.pod_groups.objects import PodGroupObject, PodGroupStatus
from scheduler.configuration.feature_gates import features_of
from scheduler.framework import Code, Status
from scheduler.objects.decode import typed_object
from scheduler.objects.meta import Condition, ObjectMeta
from scheduler.objects.pod_group import POD_GROUPS, GroupKey
from scheduler.testing.fakes import FakeApi, FakeBackground

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "default/g"
SCHEDULED = "PodGroupInitiallyScheduled"
V1BETA1 = "scheduling.k8s.io/v1beta1"
REJECTED = Condition(SCHEDULED, "False", "Unschedulable", "no")


class Group:
    """A PodGroup with its condition, and a server that writes it."""

    def __init__(self, condition: Condition | None = None, api_version: str = V1BETA1) -> None:
        status = PodGroupStatus(conditions=() if condition is None else (condition,))
        self.found = PodGroupObject(api_version=api_version, metadata=ObjectMeta(uid="u"), status=status)
        self.api, self.background = FakeApi(), FakeBackground()
        self.assumed: list[Mapping[str, Any]] = []
        objects: Any = self
        self.conditions = GroupConditions(objects=objects, background=self.background, statuses=self.api)

    def objects(self, kind: str) -> Group:
        assert kind == POD_GROUPS
        return self

    def typed(self, _type: type, _key: str) -> PodGroupObject:
        return self.found

    def __contains__(self, _key: str) -> bool:
        return True

    def assume(self, _kind: str, obj: Mapping[str, Any]) -> None:
        self.assumed.append(obj)

    def tell(self, *results: Status) -> list[tuple[str, str]]:
        """Report results, and return status and message of the conditions that were written."""
        for result in results:
            self.conditions.tell(KEY, result)
        asyncio.run(self.background.carry_out())
        written = [status["conditions"][0] for _, _, status in self.api.statuses]
        return [(each["status"], each["message"]) for each in written]


def test_a_result_is_written_and_the_answer_is_assumed():
    group = Group()
    assert group.tell(Status.unschedulable("no")) == [("False", "no")]
    assert group.assumed == [{"metadata": {"uid": "u"}, "status": group.api.statuses[0][2]}]


def test_an_equal_result_is_not_written_again():
    assert Group(REJECTED).tell(Status.unschedulable("no")) == []


def test_a_condition_that_is_true_or_is_being_written_so_never_changes():
    assert Group(Condition(SCHEDULED, "True", "Scheduled")).tell(Status.unschedulable("no")) == []
    assert Group().tell(Status(Code.SUCCESS), Status.unschedulable("no")) == [("True", "")]


def test_only_the_last_of_several_waiting_results_is_written():
    assert Group().tell(Status.unschedulable("a"), Status.unschedulable("b")) == [("False", "b")]


@pytest.mark.parametrize(
    ("version", "type_"),
    [
        ("v1alpha2", "PodGroupScheduled"),
        ("v1alpha3", "PodGroupInitiallyScheduled"),
        ("v1beta1", "PodGroupInitiallyScheduled"),
    ],
)
def test_the_condition_has_the_name_of_the_version_of_the_object(version: str, type_: str):
    group = Group(api_version=f"scheduling.k8s.io/{version}")
    group.tell(Status(Code.SUCCESS))

    ((_, _, status),) = group.api.statuses
    assert [each["type"] for each in status["conditions"]] == [type_]
    known = Group(Condition(type_, "True", "Scheduled"), f"scheduling.k8s.io/{version}")
    assert known.tell(Status.unschedulable("no")) == []


@pytest.mark.parametrize(
    ("mode", "whole"),
    [
        pytest.param(None, False, id="none"),
        pytest.param("Pod", False, id="single in v1alpha2"),
        pytest.param("PodGroup", True, id="all in v1alpha2"),
        pytest.param({"single": {}}, False, id="single"),
        pytest.param({"all": {"later": 1}}, True, id="all"),
        pytest.param({"single": {}, "all": None}, False, id="a null is absent"),
    ],
)
def test_the_disruption_mode_is_read_in_the_form_of_each_version(mode: object, whole: bool):
    found = typed_object({"spec": {"disruptionMode": mode}}, PodGroupObject)

    assert found.as_group(GroupKey(POD_GROUPS, "default", "g"), features_of({})).leaves_whole == whole
