"""One disagreement with another scheduler, in the form of `/debug/shadow`, as one line of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def disagreement(found: Mapping[str, Any]) -> str:
    """Return both choices and, where the scores differ, both scores by plugin: theirs, then ours."""
    theirs, ours = found.get("theirs", {}), found.get("ours", {})
    return "; ".join(
        [
            f"{found['at']} {found['profile']}: {found['decision']}, {found['cause']}",
            *_choice("theirs", theirs),
            *_choice("ours", ours),
            *([found["message"]] if "message" in found else []),
            *_differences(theirs.get("scores", {}), ours.get("scores", {})),
        ]
    )


def _choice(whose: str, choice: Mapping[str, Any]) -> Iterator[str]:
    if not choice:
        return
    about = [f"{choice['total']} total score"] if "total" in choice else []
    about += [f"one of {choice['ties']} equal nodes"] if choice.get("ties", 1) > 1 else []
    about += [", ".join(choice["reasons"])] if "reasons" in choice else []
    about += [f"evicting {', '.join(choice['victims'])}"] if choice.get("victims") else []
    description = f" ({', '.join(about)})" if about else ""
    yield f"{whose} {choice['node']}{description}"


def _differences(theirs: Mapping[str, int], ours: Mapping[str, int]) -> Iterator[str]:
    for plugin in theirs:
        if theirs[plugin] != ours.get(plugin):
            yield f"{plugin} {theirs[plugin]} vs {ours.get(plugin)}"
