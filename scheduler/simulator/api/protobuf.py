"""Protobuf bodies, as far as `kubectl create deployment`, `create namespace` and their like send them.

kubectl encodes what it makes up itself in protobuf, and what it reads from files in JSON. Only messages and
fields that it makes up are known here; a body with any other is refused in words, never half understood.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from scheduler.clock import rfc3339
from scheduler.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.simulator.apimachinery.objects import Object

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"

# A field is `number name type`. Types: text, int, bool, bytes, time, skip (not read), a message's name; `[]`
# before one is a list, `{}` a map from text. Numbers: staging/src/k8s.io/api, the fields' protobuf tags.
_MESSAGES: Final = {
    "ObjectMeta": "1 name text, 2 generateName text, 3 namespace text, 4 selfLink text, 5 uid text, "
    "6 resourceVersion text, 7 generation int, 8 creationTimestamp time, 11 labels {}text, "
    "12 annotations {}text, 14 finalizers []text, 17 managedFields skip",
    "Namespace": "1 metadata ObjectMeta, 2 spec skip, 3 status skip",
    "ConfigMap": "1 metadata ObjectMeta, 2 data {}text, 3 binaryData {}bytes, 4 immutable bool",
    "Secret": "1 metadata ObjectMeta, 2 data {}bytes, 3 type text, 4 stringData {}text, 5 immutable bool",
    "ServiceAccount": "1 metadata ObjectMeta, 4 automountServiceAccountToken bool",
    "PriorityClass": "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description text, "
    "5 preemptionPolicy text",
    "Service": "1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status skip",
    "ServiceSpec": "1 ports []ServicePort, 2 selector {}text, 3 clusterIP text, 4 type text, "
    "5 externalIPs []text, 7 sessionAffinity text, 8 loadBalancerIP text, "
    "9 loadBalancerSourceRanges []text, 10 externalName text, 11 externalTrafficPolicy text, "
    "12 healthCheckNodePort int, 13 publishNotReadyAddresses bool, 18 clusterIPs []text",
    "ServicePort": "1 name text, 2 protocol text, 3 port int, 4 targetPort IntOrString, 5 nodePort int",
    "Deployment": "1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status skip",
    "DeploymentSpec": "1 replicas int, 2 selector LabelSelector, 3 template PodTemplateSpec, "
    "4 strategy DeploymentStrategy, 5 minReadySeconds int, 6 revisionHistoryLimit int, 7 paused bool, "
    "9 progressDeadlineSeconds int",
    "DeploymentStrategy": "1 type text",
    "Job": "1 metadata ObjectMeta, 2 spec JobSpec, 3 status skip",
    "JobSpec": "1 parallelism int, 2 completions int, 3 activeDeadlineSeconds int, 4 selector LabelSelector, "
    "5 manualSelector bool, 6 template PodTemplateSpec, 7 backoffLimit int, 8 ttlSecondsAfterFinished int, "
    "9 completionMode text, 10 suspend bool",
    "PodDisruptionBudget": "1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status skip",
    "PodDisruptionBudgetSpec": "1 minAvailable IntOrString, 2 selector LabelSelector, "
    "3 maxUnavailable IntOrString, 4 unhealthyPodEvictionPolicy text",
    "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions",
    "DeleteOptions": "1 gracePeriodSeconds int, 2 preconditions Preconditions, 3 orphanDependents bool, "
    "4 propagationPolicy text, 5 dryRun []text",
    "Preconditions": "1 uid text, 2 resourceVersion text",
    "LabelSelector": "1 matchLabels {}text",
    "PodTemplateSpec": "1 metadata ObjectMeta, 2 spec PodSpec",
    "PodSpec": "2 containers []Container, 3 restartPolicy text, 4 terminationGracePeriodSeconds int, "
    "6 dnsPolicy text, 7 nodeSelector {}text, 8 serviceAccountName text, 9 serviceAccount text, "
    "10 nodeName text, 11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool, 16 hostname text, "
    "17 subdomain text, 19 schedulerName text, 20 initContainers []Container, 24 priorityClassName text, "
    "25 priority int",
    "Container": "1 name text, 2 image text, 3 command []text, 4 args []text, 5 workingDir text, "
    "6 ports []ContainerPort, 8 resources ResourceRequirements, 13 terminationMessagePath text, "
    "14 imagePullPolicy text, 16 stdin bool, 17 stdinOnce bool, 18 tty bool, "
    "20 terminationMessagePolicy text",
    "ContainerPort": "1 name text, 2 hostPort int, 3 containerPort int, 4 protocol text, 5 hostIP text",
    "ResourceRequirements": "1 limits {}Quantity, 2 requests {}Quantity",
    "Role": "1 metadata ObjectMeta, 2 rules []PolicyRule",
    "ClusterRole": "1 metadata ObjectMeta, 2 rules []PolicyRule, 3 aggregationRule AggregationRule",
    "AggregationRule": "1 clusterRoleSelectors []LabelSelector",
    "PolicyRule": "1 verbs []text, 2 apiGroups []text, 3 resources []text, 4 resourceNames []text, "
    "5 nonResourceURLs []text",
    "RoleBinding": "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef",
    "Subject": "1 kind text, 2 apiGroup text, 3 name text, 4 namespace text",
    "RoleRef": "1 apiGroup text, 2 kind text, 3 name text",
    "TokenRequest": "1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status skip",
    "TokenRequestSpec": "1 audiences []text, 3 boundObjectRef BoundObjectReference, 4 expirationSeconds int",
    "BoundObjectReference": "1 kind text, 2 apiVersion text, 3 name text, 4 uid text",
    "TokenReview": "1 metadata ObjectMeta, 2 spec TokenReviewSpec, 3 status skip",
    "TokenReviewSpec": "1 token text, 2 audiences []text",
    "SubjectAccessReview": "1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec, 3 status skip",
    "LocalSubjectAccessReview": "1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec, 3 status skip",
    "SubjectAccessReviewSpec": "1 resourceAttributes ResourceAttributes, "
    "2 nonResourceAttributes NonResourceAttributes, 3 user text, 4 groups []text, 5 extra {}Texts, 6 uid text",
    "SelfSubjectReview": "1 metadata ObjectMeta, 2 status skip",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta, 2 spec SelfSubjectAccessReviewSpec, 3 status skip",
    "SelfSubjectAccessReviewSpec": "1 resourceAttributes ResourceAttributes, "
    "2 nonResourceAttributes NonResourceAttributes",
    "ResourceAttributes": "1 namespace text, 2 verb text, 3 group text, 4 version text, 5 resource text, "
    "6 subresource text, 7 name text",
    "NonResourceAttributes": "1 path text, 2 verb text",
    "SelfSubjectRulesReview": "1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec, 3 status skip",
    "SelfSubjectRulesReviewSpec": "1 namespace text",
}

_Fields = dict[int, tuple[str, str]]  # number -> name, type


def _parsed(fields: str) -> _Fields:
    triples = [field.split() for field in fields.split(",")]
    return {int(number): (name, type_) for number, name, type_ in triples}


_FIELDS: Final = {message: _parsed(fields) for message, fields in _MESSAGES.items()}


def decode_protobuf(body: bytes) -> Object:
    """Decode an object in the envelope Kubernetes puts around protobuf (runtime.Unknown).

    Raises:
        StatusError: 400, it is broken; 415, it has what is not known here.
    """
    if not body.startswith(_MAGIC):
        raise _broken("the provided data does not appear to be a protobuf message, expected prefix 'k8s\\0'")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        type_meta = {number: bytes(value).decode() for number, value in _fields(envelope.get(1, b""))}
        api_version, kind = type_meta.get(1, ""), type_meta.get(2, "")
        return {"kind": kind, "apiVersion": api_version, **_message(kind, envelope.get(2, b""))}
    except (IndexError, TypeError, UnicodeDecodeError) as error:
        raise _broken(f"broken protobuf: {error}") from error


def _message(name: str, data: bytes) -> Object:
    fields = _FIELDS.get(name)
    if fields is None:
        raise _unknown(f"messages of kind {name}")
    found: Object = {}
    for number, value in _fields(data):
        if number not in fields:
            raise _unknown(f"field {number} of {name}")
        field, type_ = fields[number]
        if type_.startswith("[]"):
            found.setdefault(field, []).append(_value(type_[2:], value))
        elif type_.startswith("{}"):
            entry = dict(_fields(value))
            found.setdefault(field, {})[bytes(entry.get(1, b"")).decode()] = _value(
                type_[2:], entry.get(2, b"")
            )
        elif type_ != "skip":
            taken = _value(type_, value)
            if taken is not None:
                found[field] = taken
    return found


def _value(type_: str, value: Any) -> Any:
    """Turn what is on the wire into JSON; None for what is to be left out."""
    scalar = _SCALARS.get(type_)
    return _message(type_, value) if scalar is None else scalar(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _time(value: bytes) -> str | None:
    seconds = dict(_fields(value)).get(1)
    return rfc3339(datetime.fromtimestamp(_signed(seconds), UTC)) if seconds else None


def _quantity(value: bytes) -> str:
    return bytes(dict(_fields(value)).get(1, b"0")).decode()


def _int_or_string(value: bytes) -> int | str:
    parts = dict(_fields(value))
    return bytes(parts.get(3, b"")).decode() if parts.get(1) else _signed(parts.get(2, 0))


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "text": lambda value: bytes(value).decode(),
    "bytes": lambda value: base64.b64encode(value).decode(),
    "int": _signed,
    "bool": bool,
    "time": _time,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Texts": lambda value: [bytes(text).decode() for _, text in _fields(value)],
}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: number, and an int or bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire_type = tag & 7
        if wire_type == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
        elif wire_type == 2:
            size, place = _varint(data, place)
            if place + size > len(data):
                raise IndexError("a field is longer than its message")
            yield tag >> 3, data[place : place + size]
            place += size
        else:
            raise TypeError(f"wire type {wire_type}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number; returns it and the place after it."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return number & (1 << 64) - 1, place


def _broken(problem: str) -> StatusError:
    return StatusError(400, "BadRequest", problem)


def _unknown(what: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", f"{what} are not read in protobuf here; send JSON")
