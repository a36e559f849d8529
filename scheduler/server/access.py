"""Who may read which page: the API server is asked, as it is by Kubernetes' own components.

A bearer token is shown to it in a TokenReview; whether its owner may read the path, in a SubjectAccessReview. Client
certificates and the headers of an authenticating proxy are not looked at: whoever comes with neither is anonymous.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/options, authentication.go and authorization.go.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from scheduler.client.http.request import Request
from scheduler.client.resources import Resource
from scheduler.errors import ApiError
from scheduler.server import ALWAYS_ALLOWED
from scheduler.server.messages import json_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.client.connection import ApiConnection
    from scheduler.server import messages


logger = logging.getLogger(__name__)

_TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
_SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_PRIVILEGED_GROUP = "system:masters"
_REMEMBERED_SECONDS = 10.0
_REMEMBERED_ANSWERS = 1000
_PATIENCE_SECONDS = 10.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class User(msgspec.Struct, frozen=True):
    """authentication.k8s.io/v1 UserInfo."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


_ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


class _TokenReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenReviewStatus = _TokenReviewStatus()


class _AccessReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessReviewStatus = _AccessReviewStatus()


class Access:
    """Lets requests through, or answers them in Kubernetes' words.

    Args:
        connection: who is asked; its user needs `create` on tokenreviews and subjectaccessreviews.
        always_allowed: paths that everybody may read, the API server unasked; one that ends in `*` stands for all
            that begin so.
        clock: seconds, for how long answers are remembered: 10 seconds, as upstream.
    """

    def __init__(
        self,
        connection: ApiConnection,
        always_allowed: Sequence[str] = ALWAYS_ALLOWED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._paths = frozenset(path for path in always_allowed if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allowed if path.endswith("*"))
        self._users = _Remembered[bytes, User | None](clock)
        self._verdicts = _Remembered[tuple[bytes, str, str], bool](clock)

    async def refusal(self, request: messages.Request) -> messages.Answer | None:
        """Say why a request is not answered; None if it is."""
        path = request.path
        if path in self._paths or path.startswith(self._prefixes):
            return None
        user = await self._user(request.headers.get("authorization", ""))
        if user is None:
            return _status(401, "Unauthorized", "Unauthorized")
        verb = request.method.lower()
        try:
            allowed = _PRIVILEGED_GROUP in user.groups or await self._may(user, verb, path)
        except ApiError as error:
            _complain("Cannot ask whether a request is allowed", _SUBJECT_ACCESS_REVIEWS, error)
            return _status(500, "InternalError", "Internal Server Error: cannot ask the API server")
        if not allowed:
            message = f'forbidden: User "{user.username}" cannot {verb} path "{path}"'
            return _status(403, "Forbidden", message)
        return None

    async def _user(self, authorization: str) -> User | None:
        """Return who asks; None for a token that is nobody's, or cannot be shown to the API server now."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return _ANONYMOUS
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        if key in self._users:
            return self._users[key]
        try:
            answer = await self._review(_TOKEN_REVIEWS, {"token": token}, _TokenReview)
        except ApiError as error:
            _complain("Cannot ask whose a token is", _TOKEN_REVIEWS, error)
            return None
        user = answer.status.user if answer.status.authenticated else None
        self._users[key] = user
        return user

    async def _may(self, user: User, verb: str, path: str) -> bool:
        key = (msgspec.json.encode(user), verb, path)
        if key in self._verdicts:
            return self._verdicts[key]
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        answer = await self._review(_SUBJECT_ACCESS_REVIEWS, spec, _AccessReview)
        allowed = self._verdicts[key] = answer.status.allowed and not answer.status.denied
        return allowed

    async def _review(self, resource: Resource, spec: dict[str, Any], kind: type[V]) -> V:
        """Ask the API server.

        Raises:
            ApiError: it refused, did not answer, or answered something else.
        """
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = await self._connection.send(
            Request("POST", resource.path(), msgspec.json.encode(body), timeout_seconds=_PATIENCE_SECONDS)
        )
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            raise ApiError(0, "", f"{resource.kind}: {error}") from error


class _Remembered(Generic[K, V]):
    """Answers that are not asked for again for a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: dict[K, tuple[float, V]] = {}  # until when it holds, the answer

    def __contains__(self, key: K) -> bool:
        known = self._answers.get(key)
        return known is not None and self._clock() < known[0]

    def __getitem__(self, key: K) -> V:
        return self._answers[key][1]

    def __setitem__(self, key: K, answer: V) -> None:
        if len(self._answers) >= _REMEMBERED_ANSWERS:
            self._answers.clear()  # whoever tries many tokens or paths is not to fill the memory
        self._answers[key] = (self._clock() + _REMEMBERED_SECONDS, answer)


def _complain(what: str, resource: Resource, error: ApiError) -> None:
    fields = {"status": error.status, "error": str(error)}
    if error.status == 403:
        fields["fix"] = f"allow create on {resource}, as the ClusterRole system:auth-delegator does"
    logger.warning(what, extra=fields)


def _status(code: int, reason: str, message: str) -> messages.Answer:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return json_answer(body, code)
