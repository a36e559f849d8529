"""The pages that list messages, reasons and labels have those that the code has, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from plugins.registry import IN_TREE
from scheduler.framework.reasons import SCHEDULER_CODES
from tests.support.code_messages import (
    event_reasons,
    literals_of,
    log_messages,
    modules,
    reason_codes,
    status_messages,
)

DOCS = Path(__file__).parents[2] / "docs"
KEY = re.compile(r"(?:[a-z0-9-]+\.)+[a-z0-9-]+/[A-Za-z][\w.-]*")
NO_KEYS = re.compile(
    r".*/v\d.*|(resource|scheduling|storage)\.k8s\.io/[A-Z]\w+|k8s\.io/(api|klog|scheduler)"  # versions, kinds, Go modules
    r"|kubernetes\.io/(aws-ebs|azure-disk|azure-file|cinder|gce-pd|no-provisioner|portworx-volume|vsphere-volume)"
    # Of kubectl, of its exec plugins and of watches.
    r"|kubectl\.kubernetes\.io/last-applied-configuration|client\.authentication\.k8s\.io/exec|k8s\.io/initial-events-end"
)
"""What looks like the name of a label, and is none that the scheduler reads or writes."""


def rows(page: str, section: str = "") -> list[str]:
    """Return the first cells of the tables of a page, or of one section of it, that are code."""
    text = (DOCS / page).read_text()
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(.+?)` \|", text, re.MULTILINE)


def test_every_warning_and_error_of_the_log_is_listed():
    listed = rows("troubleshooting.md", "The log")

    assert len(listed) > 100
    assert set(listed) == log_messages()


def test_every_reason_of_a_pod_is_listed():
    assert len(status_messages()) > 70
    assert status_messages() - set(rows("troubleshooting.md", "Pending pods")) == set()


def test_no_message_is_listed_twice():
    listed = rows("troubleshooting.md")

    assert len(listed) == len(set(listed))


def test_every_listed_message_is_a_text_of_the_code():
    texts = {
        " ".join(text.removeprefix("error: ").replace("{}", "…").split())
        for module in modules().values()
        for text in literals_of(module)
    }
    lines = {line for text in texts for line in (text, f"{text} …", f"… {text}")}
    listed = [*rows("troubleshooting.md", "Pending pods"), *rows("troubleshooting.md", "Exit statuses")]

    assert [message for message in listed if not re.fullmatch(r"\d", message) and message not in lines] == []


def test_every_reason_of_an_event_or_a_condition_is_listed():
    text = (DOCS / "events-and-conditions.md").read_text()
    listed = set(re.findall(r"^\|.*?\| `(\w+)` \| [a-z]", text, re.MULTILINE)) | set(
        re.findall(r"^\| `(\w+)` \| (?:Normal|Warning) \|", text, re.MULTILINE)
    )

    assert len(event_reasons()) > 20
    assert event_reasons() - listed == set()
    assert listed <= {literal for module in modules().values() for literal in literals_of(module)}


def test_every_label_and_annotation_is_listed():
    texts = {text for module in modules().values() for text in literals_of(module)}
    keys = {text for text in texts if KEY.fullmatch(text) and not NO_KEYS.fullmatch(text)}
    keys |= {"kubernetes.io/hostname"}  # a domain without a subdomain

    assert len(keys) > 20
    assert sorted(rows("labels-and-annotations.md")) == sorted(keys)


def test_every_reason_code_is_listed_with_its_plugin_and_its_meaning():
    text = (DOCS / "reason-codes.md").read_text().split("\n## Codes\n")[1]
    listed = re.findall(r"^\| `(\w+)` \| (\w*) \| (.+) \|$", text, re.MULTILINE)
    declared = [(code, "", meaning) for code, meaning in SCHEDULER_CODES.items()]
    for plugin in IN_TREE.values():
        declared += [(code, plugin.name, meaning) for code, meaning in plugin.reason_codes.items()]

    assert len(listed) > 70
    assert sorted(listed) == sorted(declared)


def test_every_reason_code_of_the_code_is_declared():
    declared = {*SCHEDULER_CODES, *(code for plugin in IN_TREE.values() for code in plugin.reason_codes)}

    assert len(reason_codes()) > 50
    assert reason_codes() - declared == set()
