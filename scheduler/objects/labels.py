"""The API server's syntax of labels, for selectors that it has not validated."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST_NAME = 63
_LONGEST_PREFIX = 253

_NAME = re.compile("[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")


def is_label_key(text: str) -> bool:
    """Return whether text is a valid label key: a name, optionally after a DNS domain and a slash.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelKey.
    """
    prefix, slash, name = text.rpartition("/")
    if slash and not _is_domain(prefix):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


@lru_cache(maxsize=1024)  # many names share few prefixes
def _is_domain(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Return whether text is a valid label value; the empty string is one.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/apimachinery/pkg/api/validate/content/kube.go, IsLabelValue.
    """
    return not text or (len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None)
