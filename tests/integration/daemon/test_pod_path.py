"""The path of a plain pod through the daemon is as long as it has to be, and not longer."""

from tests.bench.pod_path import path


def test_a_plain_pod_passes_a_bounded_number_of_functions_and_files() -> None:
    """The limits follow the measured numbers, so that a change which lengthens the path is a decision."""
    steps = path()

    names = [step.function for step in steps]
    assert names[0] == "HttpProtocol.data_received"
    assert names[-1] == "HttpProtocol._write"
    assert (
        names.index("SchedulingQueue.add") < names.index("PodCycle.decide") < names.index("BindingCycle.run")
    )
    assert len(steps) <= 383
    assert len({step.file for step in steps}) <= 102
