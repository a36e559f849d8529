"""Serves the kinds of CustomResourceDefinitions, and deletes the objects of deleted ones.

A real API server does this itself, so custom resources can be used without controllers.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/controller/{status,establish,finalizer}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import condition_of, is_terminating, with_condition
from scheduler.simulator.controllers.controller import QueueController
from scheduler.simulator.custom_resources.definitions import CLEANUP_FINALIZER
from scheduler.simulator.custom_resources.kinds import kinds_of

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.kinds import Kind
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_RETRY_SECONDS: Final = 1.0


class DefinitionController(QueueController):
    """Accepts names, serves kinds, and deletes custom resources with their definition."""

    resources = (_DEFINITIONS,)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._definitions: dict[str, Object] = {}  # name -> definition
        self._served: dict[str, tuple[Object, list[Kind]]] = {}  # name -> (served spec, kinds)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        self.enqueue(name)
        if type_ == "DELETED":
            self._definitions.pop(name, None)
        else:
            self._definitions[name] = obj

    def reconcile(self, key: str) -> None:
        definition = self._definitions.get(key)
        if definition is None:
            self._withdraw(key)
        elif is_terminating(definition):
            self._empty(definition)
        else:
            self._establish(definition)

    def _establish(self, definition: Object) -> None:
        """Accept a definition's names unless they conflict with another's; then serve it."""
        spec = definition["spec"]
        problem = self._taken(definition)
        accepted = definition["status"]["acceptedNames"] if problem else spec["names"]
        now = self.store.timestamp()
        reason, message = problem or ("NoConflicts", "no conflicts found")
        names_accepted = _condition("NamesAccepted", not problem, reason, message)
        conditions = with_condition(definition["status"].get("conditions"), names_accepted, now)
        if not problem:
            text = "the initial names have been accepted"
            established = _condition("Established", True, "InitialNamesAccepted", text)
            conditions = with_condition(conditions, established, now)
            self._serve(definition | {"status": definition["status"] | {"acceptedNames": accepted}})
        elif not condition_of(definition, "Established"):
            refused = _condition("Established", False, "NotAccepted", "not all names are accepted")
            conditions = with_condition(conditions, refused, now)
        status = {"conditions": conditions, "acceptedNames": accepted}
        self.store.change(definition, {"status": status}, "status")

    def _serve(self, definition: Object) -> None:
        name, spec = definition["metadata"]["name"], definition["spec"]
        known = self._served.get(name)
        if known is not None and known[0] == spec:
            return
        kinds = kinds_of(definition)
        self.store.serve(kinds, instead_of=known[1] if known else ())
        self._served[name] = (spec, kinds)

    def _taken(self, definition: Object) -> tuple[str, str] | None:
        """Return the reason and message of a name conflict with another kind of the group; None if there is none."""
        spec = definition["spec"]
        mine = {spec["names"].get(field, "") for field in ("plural", "singular")}
        mine |= set(spec["names"].get("shortNames", ()))
        for name, (other, _) in self._served.items():
            if name == definition["metadata"]["name"] or other["group"] != spec["group"]:
                continue
            names = other["names"]
            theirs = {names.get("plural", ""), names.get("singular", ""), *names.get("shortNames", ())}
            for clash in sorted(mine & theirs - {""}):
                return "NamesConflict", f'"{clash}" is already in use'
            if names["kind"] == spec["names"]["kind"]:
                return "KindConflict", f'"{names["kind"]}" is already in use'
        return None

    def _empty(self, definition: Object) -> None:
        """Delete all custom resources of a terminating definition; remove it when none is left."""
        name = definition["metadata"]["name"]
        if name in self._served:
            for obj in self.store.list(name):
                if not is_terminating(obj):
                    self.store.remove(obj)
            if self.store.list(name):
                self.later(_RETRY_SECONDS, self.look_again, name)
                return
        kept = [one for one in definition["metadata"].get("finalizers", ()) if one != CLEANUP_FINALIZER]
        self._withdraw(name)
        self.store.change(definition, {"metadata": {"finalizers": kept or None}})

    def _withdraw(self, name: str) -> None:
        _, kinds = self._served.pop(name, ({}, []))
        self.store.serve((), instead_of=kinds)


def _condition(type_: str, holds: bool, reason: str, message: str) -> Object:
    return {"type": type_, "status": str(holds), "reason": reason, "message": message}
