"""Explanations of groups as text: the result, the domains, the members, and the state in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from scheduler.tools.whatif.text_lines import filled, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from scheduler.engine.cycle.group_explanation import GroupExplanation

_STYLES = {"schedulable": "green", "gated": "yellow", "waiting_on_preemption": "yellow"}
_RESULTS = {"waiting_on_preemption": "waiting on preemption"}
_NAMES_SHOWN = 3
_VICTIMS_SHOWN = 10
_PLACEMENTS_SHOWN = 8


def member_of(brief: dict[str, Any]) -> str:
    """Return a sentence about the group of a pod; a group without an attempt has no result."""
    result = brief["result"]
    told = (
        f"It waits for its group {_named(brief)}" if result != "schedulable" else f"Its group {_named(brief)}"
    )
    if result is None:
        return f"{told}, which had no attempt yet."
    fits = f", {brief['fits']} of {brief['members']} members fit" if result != "gated" else ""
    said = f": {brief['message']}" if brief["message"] else "."
    return f"{told}: {_RESULTS.get(result, result)}{fits}{said}"


def show_group(console: Console, explanation: GroupExplanation, *, all_nodes: bool) -> None:
    """Print the explanation of a group, with all domains and members, or only the first ones of each kind."""
    width = console.width
    result: str = explanation["result"]
    members = explanation["members"]
    text = Text.assemble(
        (f"group {_named(explanation)}", "bold"),
        ": ",
        (_RESULTS.get(result, result), f"bold {_STYLES.get(result, 'red')}"),
    )
    if result != "gated":
        text.append(f", {explanation['fits']} of {len(members)} members fit")
    console.print(text, soft_wrap=not console.is_terminal)
    if explanation["message"]:
        console.print(Text(explanation["message"]), soft_wrap=not console.is_terminal)
    for sentence in (
        *_attempt(explanation),
        *_standing(explanation),
        *_room(explanation, all_nodes=all_nodes),
    ):
        console.print(Text(filled(sentence, width, hanging=2)), soft_wrap=True)
    for head, lines in (
        (_domains_head(explanation), _domains(explanation, width, all_nodes=all_nodes)),
        ("Members:", _members(members, width, all_nodes=all_nodes)),
    ):
        shown = list(lines)
        if shown:
            console.print(Text(head, style="bold"), soft_wrap=True)
        for line in shown:
            console.print(Text(line), soft_wrap=True)
    console.print()


def _named(told: dict[str, Any]) -> str:
    name: str = told["group"]
    asks = [f"minCount {told['minCount']}"] if told["minCount"] else []
    if told["topologyKey"]:
        asks.append(f"in one {told['topologyKey']}")
    return name + (f" ({', '.join(asks)})" if asks else "")


def _attempt(explanation: GroupExplanation) -> Iterator[str]:
    if "at" in explanation:
        yield f"Last attempt at {explanation['at']}, took {explanation['seconds']:.3f} s."
    if searched := explanation["searched"]:
        yield f"The search for another order of its members took {searched} decisions."


def _standing(explanation: GroupExplanation) -> Iterator[str]:
    place, placed = explanation["place"], explanation["placed"]
    if placed:
        yield f"{placed} of its pods {'is' if placed == 1 else 'are'} already on nodes."
    if place is None:
        yield "None of its pods is in the queue."
        return
    where = f"In the queue: {place}"
    if explanation["before"] is not None:
        count = explanation["before"]
        where += f", {count} pod{' is' if count == 1 else 's are'} ahead of it" if count else ", next"
    if explanation["backoffSeconds"] is not None:
        where += f", backoff ends in {explanation['backoffSeconds']:.1f} s"
    waiting = explanation["waitingGroups"]
    others = "the only pending group" if waiting == 1 else f"one of {waiting} pending groups"
    yield f"{where}; {others}."
    for plugin, kinds in explanation["wakes"].items():
        yield f"{plugin} requeues it after changes of {some(list(kinds), None)}."


def _room(explanation: GroupExplanation, *, all_nodes: bool) -> Iterator[str]:
    victims = explanation["victims"]
    if victims:
        shown = some(victims, None if all_nodes else _VICTIMS_SHOWN)
        yield f"Preemption would evict {len(victims)} pod{'' if len(victims) == 1 else 's'}: {shown}."
    refused: dict[str, list[dict[str, Any]]] = {}
    for member in explanation["members"]:
        if "plugin" in member:
            refused.setdefault(member["plugin"], []).append(member)
    for plugin, members in refused.items():
        told = members[0]["message"] or ""
        yield f"{plugin} rejects {len(members)} of its members on every node: {told}"


def _domains_head(explanation: GroupExplanation) -> str:
    return f"Domains of {explanation['topologyKey']}, best first:"


def _domains(explanation: GroupExplanation, width: int, *, all_nodes: bool) -> Iterator[str]:
    placements = explanation["placements"] or ()
    shown = placements if all_nodes else placements[:_PLACEMENTS_SHOWN]
    if not shown:
        return
    longest = max(6, width - 44)
    names = [_cut(each["name"], longest) for each in shown]
    wide = max(6, *map(len, names))
    yield f"  {'domain':<{wide}}  nodes  capacity  fit  score"
    for name, each in zip(names, shown, strict=True):
        fits, total = ("-" if each[key] is None else each[key] for key in ("fits", "total"))
        here = "  chosen" if each["chosen"] else ""
        yield f"  {name:<{wide}}  {each['nodes']:>5}  {each['room']:>8}  {fits:>3}  {total:>5}{here}"
    if len(placements) > len(shown):
        yield f"  and {len(placements) - len(shown)} more: --all-nodes shows them"


def _members(members: list[dict[str, Any]], width: int, *, all_nodes: bool) -> Iterator[str]:
    """Yield lines for the members; members with the same result share a line."""
    kinds: dict[tuple[bool, str], list[str]] = {}
    for member in members:
        fits, node = member["fits"], member["node"]
        told = member["message"] or ""
        where = f"{member['pod']} (on {node})" if fits and node else member["pod"]
        kinds.setdefault((fits, told), []).append(where)
    for (fits, told), names in sorted(kinds.items(), key=lambda kind: kind[0][0]):
        one = len(names) == 1
        verdict = f"{len(names)} {('fits' if one else 'fit') if fits else ('does not fit' if one else 'do not fit')}"
        said = f": {told}" if told else ""
        yield filled(f"{verdict}{said}", width, indent=2, hanging=4)
        yield filled(some(names, None if all_nodes else _NAMES_SHOWN), width, indent=4)


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"
