"""Explains which claim or volume keeps a pod from a node, and what would help.

Filter decides. The explanation may check all volumes of a class, which no decision does.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from plugins.volume_binding.candidates import (
    AVAILABLE,
    CAPACITIES_OF_CLASS,
    CapacityDemand,
    VolumeDemand,
    reach_of_capacity,
)
from plugins.volume_binding.claims import (
    SELECTED_NODE,
    fault_of,
    is_fully_bound,
    key_of,
    reach_on,
    selected_node,
)
from plugins.volume_binding.node_volumes import NO_PROVISIONER, NodeRefusal, topologies
from plugins.volume_binding.reachability import reach_of, reaches
from plugins.volumes.storage import CSI_STORAGE_CAPACITIES, VOLUMES, StorageObjects
from scheduler.objects.label_index import asked_of, only_for, some_of
from scheduler.objects.quantity import canonical_quantity, parse_quantity
from scheduler.objects.selectors import SelectorError
from scheduler.objects.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolume
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from plugins.volume_binding.node_volumes import NodeVolumes
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.storage import PersistentVolumeClaim, PodClaim, StorageClass
    from scheduler.snapshot import NodeInfo, Snapshot

Amount = str | int | float
"""A quantity as it is written."""

_OF_CLASS: Final = Index(PersistentVolume, lambda volume: (volume.class_name,))


def why_not_anywhere(pod: PodInfo, storage: StorageObjects) -> Iterator[str]:
    """Yield what is wrong with the claims of a pod on every node."""
    for named in pod.claims:
        claim = storage.claim(named.key)
        if claim is None or fault_of(pod, named, claim):
            yield f"volume {named.volume}: {fault_of(pod, named, claim)}"
            if claim is None and not named.is_ephemeral:
                yield f"what would help: a PersistentVolumeClaim {named.name} in namespace {pod.namespace}"
        elif not is_fully_bound(claim):
            yield from _why_not_bound(claim, storage)


def why_not_on(snapshot: Snapshot, node: NodeInfo, judged: NodeVolumes) -> Iterator[str]:
    """Yield the reasons against one node; nothing if the node passes."""
    storage, refusals = StorageObjects(snapshot), judged.refusals_of(node.row)
    if refusals & (NodeRefusal.GONE | NodeRefusal.NOT_REACHED):
        for claim in judged.claims.bound:
            yield from _why_not_reached(claim, node, storage)
    if not refusals & (NodeRefusal.NO_VOLUME | NodeRefusal.NO_ROOM):
        return
    for claim in judged.claims.unbound:
        selected = selected_node(claim)
        if selected is not None and selected != node.name:
            yield f"claim {_name(claim)}: its volume is to be provisioned for node {selected} (annotation {SELECTED_NODE})"
        elif selected is not None:
            yield from _why_not_made(claim, node, snapshot)
        elif judged.lacks_volume(claim, node.row):
            yield from _why_no_volume(claim, node, snapshot)


def clause_anywhere(pod: PodInfo, named: PodClaim, storage: StorageObjects) -> str:
    """Return the clause after which a claim no longer excludes every node; "" if it does not."""
    claim = storage.claim(named.key)
    if claim is None:
        if named.is_ephemeral:
            return f"claim {named.name} were created for its volume {named.volume}"
        return f"a PersistentVolumeClaim {named.name} existed in namespace {pod.namespace}"
    if fault := fault_of(pod, named, claim):
        return f"claim {named.name} were usable (now {fault})"
    return "" if is_fully_bound(claim) else _clause_before_a_node(claim, storage)


def _clause_before_a_node(claim: PersistentVolumeClaim, storage: StorageObjects) -> str:
    """Return the clause after which a claim is bound; "" if it waits for the node of its pod."""
    name = _name(claim)
    of_class, volume_name = claim.class_name, claim.spec.volume_name
    if volume_name:
        return f"claim {name} were bound to its volume {volume_name}"
    storage_class = storage.storage_class(of_class) if of_class else None
    if storage_class is None:
        missing = f'a StorageClass "{of_class}" existed, or ' if of_class else ""
        return f"{missing}a volume existed for claim {name} ({_wanted(claim)})"
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return ""
    return f'claim {name} were bound (its class "{of_class}" waits for {_maker(storage_class)})'


def clauses_on(row: int, snapshot: Snapshot, judged: NodeVolumes) -> dict[str, str]:
    """Return the claims that keep the pod from a node, each with the clause after which it does not."""
    node, storage, refusals = snapshot.node_info(row), StorageObjects(snapshot), judged.refusals_of(row)
    found = {}
    if refusals & (NodeRefusal.GONE | NodeRefusal.NOT_REACHED):
        found = {key_of(claim): _clause_of_bound(claim, node, storage) for claim in judged.claims.bound}
    if refusals & (NodeRefusal.NO_VOLUME | NodeRefusal.NO_ROOM):
        for claim in judged.claims.unbound:
            selected = selected_node(claim)
            if selected is not None and selected != node.name:
                found[key_of(claim)] = f"the volume of claim {_name(claim)} were not for node {selected}"
            elif selected is not None or judged.lacks_volume(claim, row):
                found[key_of(claim)] = _clause_of_unbound(claim, node, snapshot)
    return {key: clause for key, clause in found.items() if clause}


def _clause_of_bound(claim: PersistentVolumeClaim, node: NodeInfo, storage: StorageObjects) -> str:
    name, volume = _name(claim), storage.bound_volume(claim)
    if volume is None:
        return f"volume {claim.spec.volume_name} of claim {name} existed"
    try:
        reach = reach_on(volume, storage.csi_node(node.name))
    except ValueError:
        reach = ()
    if reaches(reach, node.labels):
        return ""
    now = f"{volume.metadata.name}, for nodes with {asked_of(reach or ())}"
    return f"claim {name} were bound to a volume that {node.name} reaches (now {now})"


def _clause_of_unbound(claim: PersistentVolumeClaim, node: NodeInfo, snapshot: Snapshot) -> str:
    """Return the clause after which a node has a volume for a claim, or can get one; "" if it can already."""
    if not list(_why_not_made(claim, node, snapshot)):
        return ""
    name, of_class, storage = _name(claim), claim.class_name, StorageObjects(snapshot)
    storage_class = storage.storage_class(of_class)
    assert storage_class is not None, "of a class that is not there claims do not wait for a node"
    if storage_class.provisioner in {"", NO_PROVISIONER}:
        return f'a volume of class "{of_class}" existed for claim {name} that {node.name} reaches ({_wanted(claim)})'
    if not reaches(topologies(storage_class), node.labels):
        return f'class "{of_class}" of claim {name} provisioned volumes for {node.name} (its allowedTopologies do not match)'
    asked = _amount(claim.spec.resources.requests.storage)
    return (
        f'{asked} of class "{of_class}" were free for {node.name} (in a CSIStorageCapacity), for claim {name}'
    )


def _why_not_bound(claim: PersistentVolumeClaim, storage: StorageObjects) -> Iterator[str]:
    """Yield why a claim that has to be bound before the pod has a node is not bound; nothing for other claims."""
    name, of_class, volume_name = _name(claim), claim.class_name, claim.spec.volume_name
    if volume_name:
        volume = storage.bound_volume(claim)
        if volume is None:
            yield f"claim {name} names volume {volume_name}, which does not exist"
        elif (holder := _holder(volume)) not in {None, key_of(claim)}:
            yield f"claim {name} names volume {volume_name}, which is bound to claim {holder}"
        else:
            yield f"claim {name} names volume {volume_name}; the volume controller has not bound them yet"
        return
    storage_class = storage.storage_class(of_class) if of_class else None
    if storage_class is None:
        which = f'class "{of_class}", which does not exist' if of_class else "no class"
        yield f"claim {name} has no volume yet, and is of {which}"
        missing = f' a StorageClass "{of_class}", or' if of_class else ""
        yield f"what would help:{missing} a volume for it: {_wanted(claim)}"
    elif storage_class.volume_binding_mode is None:
        yield f'claim {name}: its class "{of_class}" has no volumeBindingMode'
    elif storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        yield (
            f'claim {name} has no volume yet; its class "{of_class}" binds it before the pod has a node, by '
            f"{_maker(storage_class)}"
        )


def _maker(storage_class: StorageClass) -> str:
    if storage_class.provisioner in {"", NO_PROVISIONER}:
        return "an administrator who creates volumes manually"
    return f"the provisioner {storage_class.provisioner}"


def _why_not_reached(claim: PersistentVolumeClaim, node: NodeInfo, storage: StorageObjects) -> Iterator[str]:
    name, volume = _name(claim), storage.bound_volume(claim)
    if volume is None:
        yield f"claim {name} is bound to volume {claim.spec.volume_name}, which does not exist"
        return
    try:
        reach = reach_on(volume, storage.csi_node(node.name))
    except ValueError as error:
        yield f"claim {name} is bound to volume {volume.metadata.name}: {error}"
        return
    if not reaches(reach, node.labels):
        yield f"claim {name} is bound to volume {volume.metadata.name}, which is {only_for(reach or (), node.labels)}"
        yield "what would help: free capacity on a node with such labels, since the volume cannot move"


def _why_no_volume(claim: PersistentVolumeClaim, node: NodeInfo, snapshot: Snapshot) -> Iterator[str]:
    """Yield why there is no volume for a claim if none can be provisioned either."""
    not_made = list(_why_not_made(claim, node, snapshot))
    if not not_made:
        return
    try:
        demand = VolumeDemand.of(claim)
    except SelectorError as error:
        yield f"claim {_name(claim)}: its selector is invalid: {error}"
        return
    volumes = snapshot.objects(VOLUMES).indexed(_OF_CLASS, claim.class_name)
    there = f'of the {len(volumes)} volumes of class "{claim.class_name}":' if volumes else "there is none"
    yield f"claim {_name(claim)} needs {_wanted(claim)}; {there}"
    yield from _shortcomings(claim, demand, volumes.values(), node)
    yield from not_made


def _why_not_made(claim: PersistentVolumeClaim, node: NodeInfo, snapshot: Snapshot) -> Iterator[str]:
    """Yield why no volume can be provisioned for a claim on a node, and what would help; nothing if it can."""
    name, of_class, storage = _name(claim), claim.class_name, StorageObjects(snapshot)
    storage_class = storage.storage_class(of_class)
    assert storage_class is not None, "of a class that is not there claims do not wait for a node"
    if storage_class.provisioner in {"", NO_PROVISIONER}:
        yield f'what would help: such a volume of class "{of_class}" that this node reaches; its class has no provisioner'
        return
    allowed = topologies(storage_class)
    if not reaches(allowed, node.labels):
        yield f'claim {name}: class "{of_class}" provisions volumes {only_for(allowed or (), node.labels)}'
        yield "what would help: these labels of the node among the class's allowedTopologies"
        return
    driver, request = storage.csi_driver(storage_class.provisioner), claim.spec.resources.requests
    if request.storage is not None and driver is not None and driver.spec.storage_capacity:
        yield from _why_no_room(claim, request.storage, storage_class.provisioner, node, snapshot)


def _why_no_room(
    claim: PersistentVolumeClaim, asked: Amount, driver: str, node: NodeInfo, snapshot: Snapshot
) -> Iterator[str]:
    demand = CapacityDemand(claim.class_name, parse_quantity(asked).value())
    reports = snapshot.objects(CSI_STORAGE_CAPACITIES).indexed(CAPACITIES_OF_CLASS, claim.class_name)
    here = [each for each in reports.values() if reaches(reach_of_capacity(each), node.labels)]
    if any(map(demand.is_met_by, here)):
        return
    who = f'claim {_name(claim)}: driver {driver} reports of class "{claim.class_name}"'
    amounts = [each.largest_volume for each in here]
    known = [amount for amount in amounts if amount is not None]
    if not here:
        yield f"{who} nothing about this node (none of {len(reports)} CSIStorageCapacity objects is for it)"
    elif not known:
        yield f"{who} storage for this node, but not how much"
    else:
        largest = here[amounts.index(max(known, key=lambda amount: amount.nanos))]
        written = largest.capacity if largest.maximum_volume_size is None else largest.maximum_volume_size
        yield (
            f"{who} {_amount(written)} at most on this node (CSIStorageCapacity {largest.metadata.name}), and "
            f"{_amount(asked)} are requested"
        )
    yield f"what would help: {_amount(asked)} free in a CSIStorageCapacity for this node, or a volume of that size"


def _shortcomings(
    claim: PersistentVolumeClaim, demand: VolumeDemand, volumes: Iterable[PersistentVolume], node: NodeInfo
) -> Iterator[str]:
    """Yield why volumes do not fit, grouped by reason; first the volumes that this node reaches."""
    alike: dict[str, list[str]] = defaultdict(list)
    elsewhere: dict[str, list[str]] = defaultdict(list)
    for volume in sorted(volumes, key=lambda each: each.metadata.name):
        reach = reach_of(volume)
        if not reaches(reach, node.labels):
            elsewhere[f"is only for nodes with {asked_of(reach or ())}"].append(volume.metadata.name)
        else:
            alike[_shortcoming(claim, demand, volume)].append(volume.metadata.name)
    far = [name for names in elsewhere.values() for name in names]
    for shortcoming, names in alike.items():
        yield f"  {some_of(names)} {shortcoming}"
    if len(elsewhere) <= _PLACES_SHOWN:
        for shortcoming, names in elsewhere.items():
            yield f"  {some_of(names)} {shortcoming}"
    else:
        yield f"  {some_of(far)} are for nodes with other labels"


_PLACES_SHOWN = 3


def _shortcoming(claim: PersistentVolumeClaim, demand: VolumeDemand, volume: PersistentVolume) -> str:
    """Return why a volume that a node reaches does not fit a claim."""
    return next(_faults(claim, demand, volume), "is taken by another claim of this pod")


def _faults(claim: PersistentVolumeClaim, demand: VolumeDemand, volume: PersistentVolume) -> Iterator[str]:
    spec, reference = volume.spec, volume.spec.claim_ref
    if reference is not None and _holder(volume) != key_of(claim):
        yield f"is taken, by claim {_holder(volume)}"
    if reference is not None and reference.uid not in {"", claim.metadata.uid}:
        yield f"is taken, by a deleted claim {_holder(volume)}"
    if volume.metadata.deletion_timestamp:
        yield "is being deleted"
    if reference is None and volume.status.phase != AVAILABLE:
        yield f"is not Available but {volume.status.phase or 'of no phase yet'}"
    if spec.capacity.quantity.nanos < demand.nanos:
        yield f"has only {_amount(spec.capacity.storage)}"
    if missing := sorted(demand.access_modes.difference(spec.access_modes)):
        yield f"is not {', '.join(missing)}"
    if not demand.has_room_in(volume):
        yield f"is of another volumeMode or VolumeAttributesClass than {_wanted(claim)}"
    if demand.labels is not None and not demand.labels.matches(volume.metadata.labels):
        yield "lacks the labels of the claim's selector"


def _wanted(claim: PersistentVolumeClaim) -> str:
    spec = claim.spec
    wanted = ["a", *spec.access_modes, "volume"]
    if spec.volume_mode not in {None, "Filesystem"}:
        wanted.append(f"of mode {spec.volume_mode}")
    if spec.volume_attributes_class_name:
        wanted.append(f"of VolumeAttributesClass {spec.volume_attributes_class_name}")
    return f"{' '.join(wanted)} of {_amount(spec.resources.requests.storage)} or more"


def _holder(volume: PersistentVolume) -> str | None:
    reference = volume.spec.claim_ref
    return None if reference is None else f"{reference.namespace}/{reference.name}"


def _amount(written: Amount | None) -> str:
    return canonical_quantity(0 if written is None else written)


def _name(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.name
