from __future__ import annotations

import pytest

from scheduler.objects.resource_names import (
    is_dra_extended_resource_name,
    is_extended_resource_name,
    is_scalar_resource_name,
)


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        pytest.param("cpu", False, False, id="cpu has a place of its own"),
        pytest.param("memory", False, False, id="so has memory"),
        pytest.param("ephemeral-storage", False, False, id="and ephemeral storage"),
        pytest.param("pods", False, False, id="and the number of pods"),
        pytest.param("nvidia.com/gpu", True, True, id="a vendor's"),
        pytest.param("vendor/Odd_Name.1", True, True, id="a domain of one label"),
        pytest.param("hugepages-2Mi", False, True, id="huge pages"),
        pytest.param("attachable-volumes-aws-ebs", False, True, id="attachable volumes"),
        pytest.param("kubernetes.io/batch-cpu", False, True, id="Kubernetes' domain"),
        pytest.param("scheduling.kubernetes.io/foo", False, True, id="a part of that domain"),
        pytest.param("requests.nvidia.com/gpu", False, False, id="a quota's name"),
        pytest.param("gpu", False, False, id="no domain"),
        pytest.param("a/b/c", False, False, id="two slashes"),
        pytest.param("nvidia.com/", False, False, id="no name"),
        pytest.param("/gpu", False, False, id="an empty domain"),
        pytest.param("Nvidia.com/gpu", False, False, id="a domain in capitals"),
        pytest.param("nvidia..com/gpu", False, False, id="an empty label"),
        pytest.param("nvidia.com/-gpu", False, False, id="a name that starts with a dash"),
        pytest.param("nvidia.com/gpu\n", False, False, id="a line break"),
        pytest.param("nvidia.com/" + "g" * 63, True, True, id="the longest name"),
        pytest.param("nvidia.com/" + "g" * 64, False, False, id="a name too long"),
        pytest.param("n" * 244 + "/gpu", True, True, id="the longest domain"),
        pytest.param("n" * 245 + "/gpu", False, False, id="a domain too long with the quota's prefix"),
    ],
)
def test_a_resource_name_has_its_kind(name: str, extended: bool, scalar: bool):
    assert is_extended_resource_name(name) is extended
    assert is_scalar_resource_name(name) is scalar


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("nvidia.com/gpu", True, id="extended"),
        pytest.param("deviceclass.resource.kubernetes.io/gpu", True, id="a device class"),
        pytest.param("kubernetes.io/gpu", False, id="another native name"),
        pytest.param("cpu", False, id="cpu"),
    ],
)
def test_resource_names_that_devices_may_provide(name: str, expected: bool):
    assert is_dra_extended_resource_name(name) is expected
