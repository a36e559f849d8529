"""Messages of kube-scheduler's taken apart again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.framework.diagnosis import PASS, Diagnosis, Outcome
from scheduler.framework.status import Code
from scheduler.tools.whatif.pending_causes import Causes, PendingCause, causes_in


@pytest.mark.parametrize(
    ("message", "causes"),
    [
        pytest.param(
            "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.",
            Causes(
                (PendingCause("Insufficient cpu", 3), PendingCause("node(s) had untolerated taint(s)", 2)), 5
            ),
            id="two reasons, in one order for any numbers",
        ),
        pytest.param(
            "0/5 nodes are available: 5 Insufficient cpu. preemption: 0/5 nodes are available: 5 No victims.",
            Causes(
                (PendingCause("Insufficient cpu", 5),),
                5,
                "preemption: 0/5 nodes are available: 5 No victims.",
            ),
            id="preemption found nothing",
        ),
        pytest.param(
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: none.",
            Causes(
                (PendingCause("Insufficient cpu", 1),), 1, "no new claims to deallocate, preemption: none."
            ),
            id="two PostFilter plugins with messages",
        ),
        pytest.param(
            '0/5 nodes are available: persistentvolumeclaim "data" not found.',
            Causes((PendingCause('persistentvolumeclaim "data" not found', None),), 5),
            id="PreFilter speaks for all nodes",
        ),
        pytest.param(
            "0/2 nodes are available: 1 not so, but 3 others, maybe, 1 no.",
            Causes((PendingCause("no", 1), PendingCause("not so, but 3 others, maybe", 1)), 2),
            id="a reason with commas",
        ),
        pytest.param(
            "no nodes available to schedule pods",
            Causes((PendingCause("no nodes available to schedule pods", None),)),
            id="no nodes",
        ),
        pytest.param(
            "plugin said\nno", Causes((PendingCause("plugin said\nno", None),)), id="an error's words"
        ),
    ],
)
def test_a_message_is_split_into_causes(message: str, causes: Causes) -> None:
    assert causes_in(message) == causes


@given(
    st.dictionaries(
        st.sampled_from(["Insufficient cpu", "node(s) had untolerated taint {a: b}", "Too many pods"]),
        st.integers(1, 9),
        min_size=1,
    )
)
def test_the_counts_of_a_diagnosis_are_parsed_from_its_message(counts: dict[str, int]) -> None:
    diagnosis = Diagnosis.blank(sum(counts.values()))
    diagnosis.plugins = ["Some"]
    outcomes = [Outcome(Code.UNSCHEDULABLE, (reason,)) for reason in counts]
    diagnosis.tables = [(PASS, *outcomes)]
    diagnosis.rejected_by = np.zeros(diagnosis.n_nodes, dtype=np.int8)
    diagnosis.index = np.repeat(np.arange(1, len(counts) + 1), list(counts.values()))

    found = causes_in(diagnosis.message())

    assert {cause.reason: cause.nodes for cause in found.reasons} == counts
    assert found.n_nodes == diagnosis.n_nodes
