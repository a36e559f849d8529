"""Who may read which page: the API server is asked, as it is by Kubernetes' own components.

A bearer token is shown to it in a TokenReview; whether its owner may read the path, in a SubjectAccessReview. Client
certificates and the headers of an authenticating proxy are not looked at: whoever comes with neither is anonymous.

For those whom the API server vouched for lately it is asked as often as it takes; for all others so often as
`ReviewLimit` lets it, and beyond that they are told to come again.

While it cannot be asked, its last word of a token and its owner holds for reading metrics, for an hour from when it was
said: whoever looks at an outage needs them then.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/options, authentication.go and authorization.go.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from scheduler.client.http.request import Request
from scheduler.client.resources import Resource
from scheduler.errors import ApiError
from scheduler.server import ALWAYS_ALLOWED
from scheduler.server.messages import status_answer
from scheduler.server.review_limit import ReviewLimit

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
_VOUCHED_SECONDS = 3600.0
"""How long somebody is no stranger after the API server vouched for him: longer than any scraper sleeps, and as long as
tokens of pods are good for."""
_READ_IN_OUTAGES = "/metrics"
_REMEMBERED_ANSWERS = 1000
_PATIENCE_SECONDS = 10.0
_SCRAPE_PATIENCE_SECONDS = 2.0
"""For an answer that there is a last word for: both reviews have to end before a scraper gives up, after ten."""
_COMPLAINT_SECONDS = 60.0

V = TypeVar("V")


class User(msgspec.Struct, frozen=True):
    """authentication.k8s.io/v1 UserInfo."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...] | None] = msgspec.field(default_factory=dict)


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


class _TooManyStrangersError(Exception):
    """The API server is not asked now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


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
        self._clock = clock
        self._paths = frozenset(path for path in always_allowed if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allowed if path.endswith("*"))
        self._users = _Remembered[User](clock, _REMEMBERED_SECONDS)
        self._allowed = _Remembered[bool](clock, _REMEMBERED_SECONDS)
        # Apart, so that guesses push out nothing but guesses.
        self._nobody = _Remembered[bool](clock, _REMEMBERED_SECONDS)
        self._denied = _Remembered[bool](clock, _REMEMBERED_SECONDS)
        # Of a token whose it is; of a user, and of what he may, the user.
        self._vouched = _Remembered[User](clock, _VOUCHED_SECONDS)
        self._limit = ReviewLimit(clock)
        self._complained_at = -_COMPLAINT_SECONDS

    async def refusal(self, request: messages.Request) -> messages.Answer | None:
        """Say why a request is not answered; None if it is."""
        path = request.path
        if path in self._paths or path.startswith(self._prefixes):
            return None
        verb = request.method.lower()
        try:
            user = await self._user(request.headers.get("authorization", ""), path, request.peer)
            if user is None:
                return status_answer(401, "Unauthorized", "Unauthorized")
            allowed = _PRIVILEGED_GROUP in user.groups or await self._may(user, verb, path, request.peer)
        except _TooManyStrangersError as error:
            self._complain_of(request.peer)
            return _later(error.seconds)
        except ApiError:
            return status_answer(500, "InternalError", "Internal Server Error: cannot ask the API server")
        if not allowed:
            message = f'forbidden: User "{user.username}" cannot {verb} path "{path}"'
            return status_answer(403, "Forbidden", message)
        request.is_let_in = user is not _ANONYMOUS
        return None

    async def _user(self, authorization: str, path: str, peer: str) -> User | None:
        """Return who asks; None for a token that is nobody's, or cannot be shown to the API server now.

        Raises:
            _TooManyStrangersError: it is not shown.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return _ANONYMOUS
        key = _digest(token)
        user = self._users.get(key)
        if user is not None or self._nobody.get(key):
            return user
        last_word = self._last_word(key, path)
        try:
            answer = await self._asked(peer, [key], _TOKEN_REVIEWS, {"token": token}, _TokenReview, last_word)
        except ApiError as error:
            _complain("Cannot ask whose a token is", _TOKEN_REVIEWS, error, last_word)
            return last_word
        if not answer.status.authenticated:
            self._nobody.put(key, True)
            self._vouched.forget(key)
            return None
        self._users.put(key, answer.status.user)
        self._vouched.put(key, answer.status.user)
        return answer.status.user

    async def _may(self, user: User, verb: str, path: str, peer: str) -> bool:
        """Say whether somebody may do that.

        Raises:
            ApiError: the API server cannot be asked, and there is no last word of it that holds.
            _TooManyStrangersError: it is not asked.
        """
        who = msgspec.json.encode(user)
        of_user, key = _digest(who), _digest(who, verb, path)
        if self._allowed.get(key) or self._denied.get(key):
            return bool(self._allowed.get(key))
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        last_word = self._last_word(key, path)
        try:
            answer = await self._asked(
                peer, [of_user, key], _SUBJECT_ACCESS_REVIEWS, spec, _AccessReview, last_word
            )
        except ApiError as error:
            _complain("Cannot ask whether a request is allowed", _SUBJECT_ACCESS_REVIEWS, error, last_word)
            if last_word is None:
                raise
            return True
        allowed = answer.status.allowed and not answer.status.denied
        (self._allowed if allowed else self._denied).put(key, True)
        if allowed:
            self._vouched.put(key, user)
            if user is not _ANONYMOUS:
                self._vouched.put(of_user, user)
        else:
            self._vouched.forget(key)
        return allowed

    def _last_word(self, key: bytes, path: str) -> User | None:
        """Return whom the API server vouched for when it was asked last, where that is enough if it cannot be asked."""
        return self._vouched.get(key) if path == _READ_IN_OUTAGES else None

    async def _asked(
        self,
        peer: str,
        keys: Sequence[bytes],
        resource: Resource,
        spec: dict[str, Any],
        kind: type[V],
        last_word: User | None,
    ) -> V:
        """Ask the API server, unless it is asked about too many strangers already.

        Any of the keys may be of what it has vouched for.

        Raises:
            ApiError: as of `_review`.
            _TooManyStrangersError: it is not asked.
        """
        patience = _PATIENCE_SECONDS if last_word is None else _SCRAPE_PATIENCE_SECONDS
        if any(self._vouched.get(key) for key in keys):
            return await self._review(resource, spec, kind, patience)
        seconds = self._limit.begin(peer)
        if seconds:
            raise _TooManyStrangersError(seconds)
        try:
            return await self._review(resource, spec, kind, patience)
        finally:
            self._limit.end()

    def _complain_of(self, peer: str) -> None:
        now = self._clock()
        if now - self._complained_at >= _COMPLAINT_SECONDS:
            self._complained_at = now
            logger.warning("Too many strangers ask, so some are told to come again", extra={"one_from": peer})

    async def _review(self, resource: Resource, spec: dict[str, Any], kind: type[V], patience: float) -> V:
        """Ask the API server.

        Raises:
            ApiError: it refused, did not answer, or answered something else.
        """
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = await self._connection.send(
            Request("POST", resource.path(), msgspec.json.encode(body), timeout_seconds=patience)
        )
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(0, "", f"{resource.kind}: {error}") from error


class _Remembered(Generic[V]):
    """Answers that are not asked for again for a while; of too many those that were given first are forgotten."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._answers: dict[bytes, tuple[float, V]] = {}  # until when it holds, the answer

    def get(self, key: bytes) -> V | None:
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._clock() < until else None

    def forget(self, key: bytes) -> None:
        self._answers.pop(key, None)

    def put(self, key: bytes, answer: V) -> None:
        self._answers.pop(key, None)
        self._answers[key] = (self._clock() + self._seconds, answer)
        if len(self._answers) > _REMEMBERED_ANSWERS:
            del self._answers[next(iter(self._answers))]


def _digest(*parts: str | bytes) -> bytes:
    """Return what stands for a text of any length, of which nothing is kept: neither secrets nor its bytes."""
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
        found.update(b"%d:%b" % (len(data), data))
    return found.digest()


def _complain(what: str, resource: Resource, error: ApiError, last_word: User | None) -> None:
    fields: dict[str, Any] = {"status": error.status, "error": str(error)}
    if last_word is not None:
        fields["last_word_holds_for"] = last_word.username
    if error.status == 403:
        fields["fix"] = f"allow create on {resource}, as the ClusterRole system:auth-delegator does"
    logger.warning(what, extra=fields)


def _later(seconds: float) -> messages.Answer:
    """Say when to come again, as an API server says it."""
    whole = max(1, math.ceil(seconds))
    message = "too many users ask that are not known yet, please try again later"
    answer = status_answer(429, "TooManyRequests", message, details={"retryAfterSeconds": whole})
    return answer._replace(headers={"Retry-After": str(whole)})
