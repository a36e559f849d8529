"""Lists of evictions: plain lines and logs of the descheduler; what is no pod is reported with its line."""

from __future__ import annotations

import pytest

from scheduler.tools.whatif.cluster_file import ClusterFileError
from scheduler.tools.whatif.rebalancing.eviction_list import Listed, parse

PODS = {"shop/web-1", "shop/web-2", "kube-system/coredns-5d78c9869d-x2x5z"}
EVICTED = (
    '"Evicted pod in dry run mode" pod="shop/web-1" reason="a pod=\\"b/c\\"" strategy="HighNodeUtilization"'
)
UNDERUSED = 'nodeutilization.go:170] "Node is underutilized" node="n1"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("shop/web-2\nshop/web-1", [(1, "shop/web-2"), (2, "shop/web-1")], id="plain lines"),
        pytest.param("# why\n\n  shop/web-1 \r\n", [(3, "shop/web-1")], id="comments and empty lines"),
        pytest.param(
            f"I1127 08:00:00.000000       1 {UNDERUSED}\nI1127 08:00:00.000000       1 evictions.go:5] {EVICTED}",
            [(2, "shop/web-1")],
            id="a log of klog",
        ),
        pytest.param(
            f"2026-11-27T08:00:00Z I1127 08:00:00.000000       1 {UNDERUSED}\n"
            f"2026-11-27T08:00:00Z I1127 08:00:00.000000       1 evictions.go:5] {EVICTED}",
            [(2, "shop/web-1")],
            id="a log with the times of kubectl",
        ),
        pytest.param(
            '{"ts":1.5,"msg":"Node is underutilized","node":"n1"}\n'
            '{"ts":1.5,"msg":"Evicted pod in dry run mode","pod":{"name":"web-1","namespace":"shop"},"reason":""}',
            [(2, "shop/web-1")],
            id="a log in JSON",
        ),
        pytest.param(
            "kube-system/coredns-5d78c9869d-x2x5z",
            [(1, "kube-system/coredns-5d78c9869d-x2x5z")],
            id="a generated name",
        ),
    ],
)
def test_the_pods_of_a_list_are_read_with_their_lines(text: str, expected: list[tuple[int, str]]):
    assert parse(text.encode(), "plan", PODS) == [Listed(*each) for each in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "shop/web-1\nweb-2", ["plan: line 2: must be namespace/name", 'was "web-2"'], id="no namespace"
        ),
        pytest.param("shop/web-1 now", ["plan: line 1: must be namespace/name"], id="more words"),
        pytest.param("Shop/Web", ["plan: line 1: must be namespace/name"], id="no name of a pod"),
        pytest.param(
            "shop/web-9", ["plan: line 1: pod shop/web-9 is on no node of the cluster"], id="unknown"
        ),
        pytest.param(
            "shop/web-1\n\nshop/web-1",
            ["plan: line 3: pod shop/web-1 is already in line 1"],
            id="named twice",
        ),
        pytest.param("web-1\nshop/web-9", ["plan: line 1: ", "plan: line 2: "], id="several errors"),
        pytest.param("# nothing\n", ["plan: names no pod"], id="no pod"),
        pytest.param('{"pods": 3}', ["plan: line 1: must be"], id="other JSON"),
        pytest.param("{", ["plan: line 1: must be"], id="broken JSON"),
        pytest.param(
            '"Evicted pod in dry run mode" node="n1"',
            ["plan: line 1: must be"],
            id="an eviction without a pod",
        ),
        pytest.param("\xff\xfe", ["plan: line 1: must be"], id="no text"),
    ],
)
def test_what_is_no_pod_is_reported_with_its_line(text: str, expected: list[str]):
    with pytest.raises(ClusterFileError) as caught:
        parse(text.encode("latin-1"), "plan", PODS)

    assert all(each in str(caught.value) for each in expected), str(caught.value)
