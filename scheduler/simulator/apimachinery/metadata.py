"""metadata: rules for names and labels, and fields that the server sets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from scheduler.objects.selectors import is_label_value
from scheduler.simulator.apimachinery.causes import Cause, invalid_value, required
from scheduler.simulator.apimachinery.objects import names, restore

if TYPE_CHECKING:
    from random import Random

    from scheduler.simulator.apimachinery.objects import Object

NameRule = Callable[[str], str]
"""Returns the error of a name; "" if it is valid."""

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # without vowels, so that it forms no words
_LONGEST_GENERATED_BASE: Final = 58

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL, re.ASCII)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_NAME_PART_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def dns_subdomain(name: str) -> str:
    """Return the error of a name that must be a DNS subdomain, as for most kinds; "" for none."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if _DNS_SUBDOMAIN.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


def dns_label(name: str) -> str:
    """Return the error of a name that must be a DNS label, as for namespaces and services; "" for none."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if _DNS_LABEL.fullmatch(name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )


def validate_metadata(metadata: Object, name_rule: NameRule) -> Iterator[Cause]:
    """Yield the errors of a new object's metadata."""
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        problem = name_rule(name)
        if problem:
            yield invalid_value("metadata.name", f'"{name}"', problem)
    yield from validate_labels(metadata.get("labels", {}), "metadata.labels")


def validate_labels(labels: dict[str, str], field: str) -> Iterator[Cause]:
    """Yield the errors of labels."""
    for key, value in labels.items():
        yield from validate_label_name(key, field)
        yield from validate_label_value(value, field)


def validate_label_name(name: str, field: str) -> Iterator[Cause]:
    """Yield the errors of the key of a label, or of another qualified name."""
    for problem in qualified_name_problems(name):
        yield invalid_value(field, f'"{name}"', problem)


def qualified_name_problems(name: str) -> Iterator[str]:
    """Yield the errors of a name that may have a DNS subdomain and a slash before it.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.
    """
    prefix, slash, own = name.rpartition("/")
    if "/" in prefix:
        yield (
            f"a valid label key {_NAME_PART_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash and (problem := dns_subdomain(prefix)):
        yield f"prefix part {problem}"
    if not own:
        yield "name part must be non-empty"
    elif len(own) > 63:
        yield "name part must be no more than 63 characters"
    if not _NAME_PART.fullmatch(own):
        yield f"name part {_NAME_PART_RULE}"


def validate_label_value(value: str, field: str) -> Iterator[Cause]:
    """Yield the errors of the value of a label."""
    if len(value) > 63:
        yield invalid_value(field, f'"{value}"', "must be no more than 63 characters")
    elif not is_label_value(value):
        yield invalid_value(
            field,
            f'"{value}"',
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
            "must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
            "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        )


def generated_name(base: str, random: Random) -> str:
    """Return a name that begins with `base` and ends in five random characters."""
    return base[:_LONGEST_GENERATED_BASE] + "".join(random.choices(_SUFFIX_ALPHABET, k=5))


def new_uid(random: Random) -> str:
    """Return a random (version 4) UUID as text."""
    bits = random.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def keep_system_fields(metadata: Object, old: Object) -> None:
    """Restore the fields of an updated object's metadata that only the server sets."""
    for field in names("uid creationTimestamp generation deletionTimestamp deletionGracePeriodSeconds"):
        restore(metadata, old, field)
