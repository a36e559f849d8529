"""The text report of a campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.limits import PARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.faults.campaign import Report

_MOST_LINES = 400


def told(report: Report) -> str:
    """Tell what must not be and was, how to see it again, and the part in the story of the pods in question."""
    uids = {finding.uid for finding in report.findings if finding.uid}
    in_parts = " --in-parts" if report.plan.in_parts == PARTS else ""
    return "\n".join(
        [
            "",
            str(report.plan),
            f"Replay it with: python -m tests.faults --kind {report.plan.kind}{in_parts} {report.plan.seed}",
            *(f"FINDING {finding.what}" for finding in report.findings),
            *_pods(report, uids),
        ]
    )


def whole(report: Report, names: Collection[str] = ()) -> Iterator[str]:
    """Yield all that happened, line by line.

    Args:
        report: of the campaign.
        names: of pods to be told more of, beside those that findings are about.
    """
    yield str(report.plan)
    yield "\nWhat happened:"
    yield from map(str, report.story.lines)
    yield "\nWhat the API server was asked:"
    yield from report.requests
    uids = {finding.uid for finding in report.findings if finding.uid}
    uids |= {
        uid
        for uid, record in report.story.pods.items()
        if record.key in names or record.key.partition("/")[2] in names
    }
    yield from _pods(report, uids)
    yield f"\n{len(report.findings)} findings"
    yield from (f"FINDING {finding.what}" for finding in report.findings)


def _pods(report: Report, uids: Collection[str]) -> Iterator[str]:
    for uid in sorted(uids):
        record = report.story.pods.get(uid)
        if record is None:
            continue
        name = record.key.partition("/")[2]
        yield f"\n{record.key} {uid}, in the queue:"
        yield from (f"  {line}" for line in report.queue_stories.get(uid, ()))
        yield f"{record.key} {uid}, in the cluster:"
        lines = list(
            report.story.about(f"{uid[:8]}", f"{record.key} ", f"pod={record.key}", f" {name},", uid)
        )
        yield from (f"  {line}" for line in lines[-_MOST_LINES:])
        yield f"{record.key} {uid}, asked of the API server:"
        asked = [line for line in report.requests if uid in line or f"/pods/{name}" in line]
        yield from (f"  {line}" for line in asked[-_MOST_LINES:])
