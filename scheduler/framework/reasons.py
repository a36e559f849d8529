"""Why pods are rejected, for programs: a stable code beside each text, and what each code counts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

MOST_CHARACTERS: Final = 63
"""Maximum length of a reason code."""
_CODE: Final = re.compile(rf"[A-Z][A-Za-z0-9]{{0,{MOST_CHARACTERS - 1}}}")
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


@lru_cache(maxsize=1024)
def is_reason_code(code: str) -> bool:
    """Return whether a text is a reason code: CamelCase in ASCII, at most 63 characters."""
    return _CODE.fullmatch(code) is not None


class Reason(str):
    """A reason with a code of its own; a reason that is a plain string has the default code of its plugin.

    It is equal to a string with the same text: kube-scheduler's messages do not have the code.

    Attributes:
        code: the reason code, in CamelCase.
    """

    __slots__ = ("code",)
    code: str

    def __new__(cls, text: str, code: str) -> Self:
        """Return a reason.

        Args:
            text: the text for people.
            code: the reason code.

        Raises:
            ValueError: the code is not in CamelCase, or has more than 63 characters.
        """
        if not is_reason_code(code):
            raise ValueError(
                f"a reason code is in CamelCase and has at most {MOST_CHARACTERS} characters, was {code!r:.200}"
            )
        reason = super().__new__(cls, text)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # a copy needs the code too
        return str(self), self.code


@lru_cache(maxsize=1024)
def default_code(plugin: str) -> str:
    """Return the code of a plugin's reasons that are plain strings: its name in CamelCase, cut to 63 characters."""
    name = "".join(word[0].upper() + word[1:] for word in _WORD.findall(plugin))
    return (name if name[:1].isalpha() else f"Plugin{name}")[:MOST_CHARACTERS]


class Cause(NamedTuple):
    """A cause of the rejection of a pod.

    Attributes:
        code: the reason code.
        plugin: name of the plugin; "" for the scheduler itself.
        nodes: number of nodes that are rejected for it; 0 if it concerns the pod as a whole.
    """

    code: str
    plugin: str
    nodes: int = 0

    def as_json(self) -> dict[str, str | int]:
        """Return the cause as JSON values; without `nodes` if it concerns the pod as a whole."""
        nodes = {"nodes": self.nodes} if self.nodes else {}
        return {"code": self.code, "plugin": self.plugin, **nodes}


class GroupCause(NamedTuple):
    """A cause of the rejection of a group.

    Attributes:
        code: the reason code.
        plugin: name of the plugin; "" for the scheduler itself.
        members: number of members without a node that are rejected for it.
    """

    code: str
    plugin: str
    members: int

    def as_json(self) -> dict[str, str | int]:
        """Return the cause as JSON values."""
        return {"code": self.code, "plugin": self.plugin, "members": self.members}


def codes_of(reasons: Iterable[str], plugin: str) -> tuple[str, ...]:
    """Return the codes of reasons, each once; plain strings without a plugin have none."""
    codes = [
        reason.code if isinstance(reason, Reason) else plugin and default_code(plugin) for reason in reasons
    ]
    return tuple(dict.fromkeys(filter(None, codes)))


def error_causes(reasons: Iterable[str], plugin: str, error: BaseException | None) -> tuple[Cause, ...]:
    """Return the causes of an attempt that ended in an error.

    Reasons with codes of their own count; else the error, or else who failed.
    """
    own = tuple(reason.code for reason in reasons if isinstance(reason, Reason))
    of_error: str = getattr(error, "reason_code", "")
    codes = own or (of_error or (PLUGIN_ERROR if plugin else SCHEDULER_ERROR),)
    return tuple(Cause(code, plugin) for code in dict.fromkeys(codes))


def causes_by_number(numbers: Mapping[tuple[str, str], int]) -> list[tuple[str, str, int]]:
    """Return (code, plugin, number) of each (code, plugin), the largest number first."""
    found = [(code, plugin, number) for (code, plugin), number in numbers.items()]
    return sorted(found, key=lambda cause: (-cause[2], cause))


NO_NODES_CODE: Final = "NoNodes"
EXCLUDED_BY_PRE_FILTER: Final = "ExcludedByPreFilter"
OUTSIDE_SAMPLE: Final = "OutsideSample"
NODE_CHANGED: Final = "NodeChanged"
PERMIT_TIMEOUT: Final = "PermitTimeout"
WAITING_FOR_GROUP: Final = "WaitingForGroup"
NO_PLACEMENT: Final = "NoPlacement"
PLUGIN_ERROR: Final = "PluginError"
SCHEDULER_ERROR: Final = "SchedulerError"

SCHEDULER_CODES: Final = {
    NO_NODES_CODE: "the cluster has no nodes",
    EXCLUDED_BY_PRE_FILTER: "a plugin limits the pod to other nodes, at PreFilter",
    OUTSIDE_SAMPLE: "the plugin evaluates a sample of the nodes, and the node was not in it",
    NODE_CHANGED: "the node was deleted, or changed so that the pod does not fit any more, before the pod was bound",
    PERMIT_TIMEOUT: "a plugin held the pod at Permit until its timeout",
    WAITING_FOR_GROUP: "the pod fits, or was not attempted, and waits because its group is not placed",
    NO_PLACEMENT: "the members of the group must be in one topology domain, and no domain has nodes for them",
    "Extender": "an HTTP extender rejects the node",
    PLUGIN_ERROR: "the plugin failed: it reported an error, raised an exception, or returned an invalid value",
    "ApiError": "the API server refused a request for the pod, or did not answer",
    "ExtenderError": "an HTTP extender failed",
    "OverBudget": "the attempt took longer than it may hold the event loop",
    SCHEDULER_ERROR: "the scheduler itself failed",
}
"""Reason code -> meaning, of the codes that the scheduler itself gives, also with the name of a plugin."""
