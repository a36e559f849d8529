"""Lists: in pages, and at earlier versions as long as they are kept."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.simulator.apimachinery.causes import Cause, forbidden_field, not_supported
from scheduler.simulator.apimachinery.status import StatusError, bad_request, expired, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.selectors import Selector
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage.entries import Entry

EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"

_TOKEN_FORMAT: Final = "meta.k8s.io/v1"  # noqa: S105 - a version of continue tokens
_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter."
)


@dataclass(frozen=True, slots=True)
class ListChunk:
    """One page of a list.

    Attributes:
        entries: entries of the page.
        metadata: metav1.ListMeta of the list.
    """

    entries: list[Entry]
    metadata: dict[str, Any]


def parse_version(text: str) -> int:
    """Read a resourceVersion; "" is 0.

    Raises:
        StatusError: 500, as upstream: it is not a number.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        problem = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise StatusError(500, "", f'resourceVersion: Invalid value: "{text}": {problem}')
    return int(text)


def check_list_options(query: Mapping[str, str]) -> None:
    """Reject invalid combinations of list parameters.

    Raises:
        StatusError: 422.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/apis/meta/internalversion/validation.
    """
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    problems = []
    if match:
        if not version:
            problems.append("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if query.get("continue"):
            problems.append("resourceVersionMatch is forbidden when continue is provided")
        if match == EXACT and version == "0":
            problems.append('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    causes = [forbidden_field("resourceVersionMatch", problem) for problem in problems]
    if match not in {"", EXACT, NOT_OLDER_THAN}:
        causes.append(not_supported("resourceVersionMatch", match, (EXACT, NOT_OLDER_THAN, "")))
    if "sendInitialEvents" in query:
        causes.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    refuse_list_options(causes)


def is_from_storage(query: Mapping[str, str]) -> bool:
    """Return whether a list of one object bypasses the watch cache, which would wait for a future version.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go, ShouldDelegateExactRV.
    """
    return query.get("resourceVersionMatch") == EXACT and "metadata.name=" in query.get("fieldSelector", "")


def refuse_list_options(causes: list[Cause]) -> None:
    """Raise 422 if the parameters of a list or watch are invalid."""
    if causes:
        raise invalid("meta.k8s.io", "ListOptions", "", causes)


def list_page(registry: Registry, kind: Kind, selector: Selector, query: Mapping[str, str]) -> ListChunk:
    """List the selected objects.

    Raises:
        StatusError: 400, a bad continue token or limit; 410, a version that is no longer kept.
    """
    limit = _limit(query)
    token = query.get("continue", "")
    version = parse_version(query.get("resourceVersion", ""))
    storage = registry.storage(kind)
    start = ""
    if token:
        version, start = _read_token(token)
        try:
            entries = storage.entries_at(version, selector)
        except StatusError as error:
            fresh = _token(registry.versions.current, start)
            raise expired(_CONTINUE_EXPIRED, fresh) from error
    elif version and (
        query.get("resourceVersionMatch") == EXACT or (limit and not query.get("resourceVersionMatch"))
    ):
        entries = storage.entries_at(version, selector)
    else:
        entries, version = storage.entries(selector), registry.versions.current
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if start:
        entries = [entry for entry in entries if entry.key >= start]
    if limit and len(entries) > limit:
        metadata["continue"] = _token(version, entries[limit - 1].key + "\0")
        if not selector.has_predicates:
            metadata["remainingItemCount"] = len(entries) - limit
        entries = entries[:limit]
    return ListChunk(entries, metadata)


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", "") or "0"
    try:
        return max(0, int(text))
    except ValueError as error:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error


def _token(version: int, start: str) -> str:
    fields = msgspec.json.encode({"v": _TOKEN_FORMAT, "rv": version, "start": f"/{start}"})
    return base64.urlsafe_b64encode(fields).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        fields = msgspec.json.decode(base64.urlsafe_b64decode(padded.encode()))
        version, start, format_ = fields["rv"], fields["start"], fields["v"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if format_ != _TOKEN_FORMAT or not isinstance(version, int) or not str(start).startswith("/"):
        raise bad_request("invalid continue token: continue key is not valid: server key is not recognized")
    return version, str(start)[1:]
