"""The first sentences of an explanation: whether the pod fits, which change would place it, and which node is best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.objects.label_index import some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Explanation = dict[str, Any]

HELPS: Final = "what would help: "
"""The beginning of a detail that names a change of another object, such as a volume."""
_SHOWN: Final = 3
_MOST_VICTIMS: Final = 10


def with_verdict(explanation: Explanation) -> Explanation:
    """Return an explanation that begins with its `verdict`."""
    explanation.pop("verdict", None)
    return {"verdict": verdict(explanation), **explanation}


def verdict(explanation: Explanation) -> str:
    """Return the verdict of an explanation in plain words, with the smallest changes that would place the pod."""
    result, nodes = explanation["result"], explanation["nodes"]
    subject = f"Pod {explanation['pod']}"
    if "resize" in explanation:
        subject = f"{_resize(explanation)} If it were pending, it"
    elif "node" in explanation:
        subject += f" is on node {explanation['node']}; if it were pending, it"
    fits = [name for name, each in nodes.items() if each["feasible"]]
    if result == "gated":
        return f"{subject} is not attempted: {_ended(explanation['message'])}"
    if result == "error":
        return f"{subject} could not be evaluated: {_ended(explanation['message'])}"
    if (group := explanation.get("group")) and result != "schedulable" and fits:
        return f"{subject} fits on {_counted(fits, nodes)} nodes, but waits for its group {group['group']}."
    if result == "schedulable":
        return f"{subject} fits on {_counted(fits, nodes)} nodes; {_best(explanation, fits)}."
    return " ".join([f"{subject} {_nowhere(explanation, fits)}", *_remedies(explanation)])


def _resize(explanation: Explanation) -> str:
    """Return what the node of a pod lacks for its resize, and without which pods the resize would fit."""
    node, resize = explanation["node"], explanation["resize"]
    where = f"Pod {explanation['pod']} is on node {node}, which"
    if not resize["missing"]:
        return f"{where} has the capacity for its resize; the kubelet carries it out."
    found = [f"{where} lacks {_amounts(resize['missing'])} for its resize."]
    for other, held in list(resize["heldByOthers"].items())[:_SHOWN]:
        found.append(f"The deferred resize of {other} holds {_amounts(held)}.")
    preemption = resize["preemption"]
    if preemption is None:
        found.append("The pod preempts no other pod.")
    elif node in preemption["candidates"]:
        candidate = preemption["candidates"][node]
        broken = candidate["pdbViolations"]
        against = f", against the PodDisruptionBudgets of {broken} of them" if broken else ""
        found.append(f"It would fit without {some_of(candidate['victims'], _MOST_VICTIMS)}{against}.")
    elif protected := preemption.get("protected", {}).get(node):
        found.append(f"There pod {protected_text(protected)}.")
    else:
        found.append("The eviction of pods with a lower priority is not enough there, or not possible.")
    return " ".join(found)


def _amounts(amounts: Mapping[str, str]) -> str:
    return " and ".join(f"{amount} {resource}" for resource, amount in amounts.items())


def _ended(message: str | None) -> str:
    text = (message or "").strip()
    return text if text.endswith(".") else f"{text}."


def _counted(fits: Sequence[str], nodes: Mapping[str, Any]) -> str:
    return f"{len(fits)} of {len(nodes)}"


def _nowhere(explanation: Explanation, fits: Sequence[str]) -> str:
    """Return why an unschedulable pod has no node."""
    nodes, rejection = explanation["nodes"], explanation["preFilter"]
    if fits:  # a later extension point rejected it
        return f"fits on {_counted(fits, nodes)} nodes, but was rejected: {_ended(explanation['message'])}"
    if rejection is not None:
        details = [each for each in rejection.get("details", ()) if not each.startswith(HELPS)]
        why = "; ".join(details or rejection["reasons"])
        return f"does not fit on any node: {_ended(why).removesuffix('.')} ({rejection['plugin']})."
    if not nodes:
        return f"does not fit: {_ended(explanation['message'])}"
    return f"does not fit on {'the only node' if len(nodes) == 1 else f'any of {len(nodes)} nodes'}."


def _remedies(explanation: Explanation) -> Iterable[str]:
    """Yield the changes that would place the pod: those that were evaluated, or those that the plugins name."""
    if node := explanation.get("fitsNow"):
        yield f"It fits now, on {node}: the cluster changed after the attempt."
        return
    candidates = (explanation["preemption"] or {}).get("nominated") or ()
    nominated = explanation.get("nominates")
    if candidates or nominated:
        yield f"Preemption {'frees' if nominated else 'could free'} {nominated or some_of(candidates, _SHOWN)} for it."
    elif protected := (explanation["preemption"] or {}).get("protected"):
        name = first_to_end(protected)[0]
        yield f"On {name} pod {protected_text(protected[name])}."
    if remedies := explanation.get("remedies"):
        yield f"It would fit if: {joined_remedies(remedies)}."
    elif helps := _helps(explanation):
        yield f"What would help: {some_of(helps, _SHOWN)}."
    else:
        yield from (f"{_rejection(each)}." for each in explanation.get("rejections", ())[:_SHOWN])


def joined_remedies(remedies: Sequence[Mapping[str, Any]]) -> str:
    """Return remedies as alternative clauses."""
    return "; or ".join(" and ".join(each["changes"]) for each in remedies)


def first_to_end(protected: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the nodes of protected pods, the one whose protection ends first in front."""
    return sorted(
        protected, key=lambda name: (protected[name]["until"] is None, protected[name]["until"], name)
    )


def protected_text(protected: Mapping[str, Any]) -> str:
    """Return that a pod is protected, until when and by what; `protected` is of `preemption` or of `protections`."""
    until = f"until {protected['until']}" if protected["until"] else "without end"
    cause = protected.get("cause", "preemption")
    return f"{protected['pod']} is protected from {cause} {until}, by {protected['by']}"


def _rejection(rejection: Mapping[str, Any]) -> str:
    """Return how many nodes a plugin rejects, why, and what it says of all of them."""
    nodes, summary = rejection["nodes"], rejection["summary"]
    counted = f"{nodes} node{'' if nodes == 1 else 's'}"
    text = f"{rejection['plugin']} rejects {counted}: {', '.join(rejection['reasons'])}"
    return f"{text} ({summary})" if summary else text


def _helps(explanation: Explanation) -> list[str]:
    """Return the changes that the details of rejections name, each once."""
    rejections = [explanation["preFilter"] or {}, *explanation["nodes"].values()]
    details = (detail for each in rejections for detail in each.get("details", ()))
    return list(dict.fromkeys(each.removeprefix(HELPS) for each in details if each.startswith(HELPS)))


def _best(explanation: Explanation, fits: Sequence[str]) -> str:
    """Return the node that the pod gets, and why."""
    chosen, best, nodes = explanation.get("chosen"), explanation.get("best", []), explanation["nodes"]
    nominated = explanation.get("nominatedNodeName")
    name = chosen or (best[0] if best else fits[0] if fits else "none")
    if nominated and nominated == name:
        return f"best: {name}, because it is nominated there"
    if len(fits) == 1:
        return f"best: {name}, the only one"
    if not best:
        return f"chosen: {name}; the nodes were not scored"
    if len(best) > 1:
        others = some_of([each for each in best if each != name], _SHOWN)
        return f"best: {name}, with the same total ({nodes[best[0]]['total']}) as {others}{of_other_replicas(explanation)}"
    if elsewhere := of_other_replicas(explanation):
        return f"best: {name}, the best node of this replica{elsewhere}"
    return f"best: {name}, because {_why_best(nodes, name)}"


def of_other_replicas(explanation: Explanation) -> str:
    """Return how many nodes of other replicas have a higher total than the best one; "" for none."""
    nodes = explanation["nodes"]
    best = nodes[explanation["best"][0]]["total"]
    count = sum(node.get("total", best) > best for node in nodes.values())
    nodes_have = "node of other replicas has" if count == 1 else "nodes of other replicas have"
    return f"; {count} {nodes_have} a higher total" if count else ""


def _why_best(nodes: Mapping[str, Any], name: str) -> str:
    """Return which plugins score a node higher than the next one."""
    total = nodes[name]["total"]
    others = {each: node for each, node in nodes.items() if each != name and "total" in node}
    if not others:
        return "the other nodes are avoided"
    second = min(others, key=lambda each: (-others[each]["total"], each))
    mine, theirs = nodes[name].get("scores", {}), others[second].get("scores", {})
    more = sorted(
        ((mine[plugin] - theirs.get(plugin, 0), plugin) for plugin in mine),
        key=lambda each: (-each[0], each[1]),
    )
    plugins = [f"{plugin} {by} higher" for by, plugin in more if by > 0][:2]
    reasons = f" ({', '.join(plugins)})" if plugins else ""
    return f"its total is {total}, and that of the next, {second}, is {others[second]['total']}{reasons}"
