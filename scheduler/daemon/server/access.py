"""Access to the HTTP endpoints: the API server decides; a limit bounds its reviews of unknown clients.

A TokenReview authenticates a bearer token, and a SubjectAccessReview authorizes its user for the path. Client
certificates and the headers of an authenticating proxy are ignored: a client without a token is anonymous.

Reviews for clients that the API server accepted recently are not limited. Reviews for all other clients are limited by
`ReviewLimit`, and further clients must try again later.

While the API server cannot be reached, its last positive result for a token and its user remains valid for reading
metrics, for one hour: metrics are needed during an outage.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/apiserver/pkg/server/options, authentication.go and authorization.go.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from scheduler.daemon.server import ALWAYS_ALLOWED
from scheduler.errors import ApiError
from scheduler.http_server.messages import status_answer
from scheduler.kube.client.resources import Resource
from scheduler.kube.http.request import Request
from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.http_server import messages
    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

_PEER_PER_SECOND, _PEER_AT_ONCE = 5.0, 10.0
_ALL_PER_SECOND, _ALL_AT_ONCE = 20.0, 40.0
"""A single busy peer thus leaves most of the rate to others."""
_UNDER_WAY = 20
"""A slow API server gets fewer requests."""
_PEERS = 1000


@dataclass(slots=True)
class _Bucket:
    """A token bucket."""

    per_second: float
    at_once: float
    left: float
    at: float

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until a token is available; 0 if one is."""
        self.left = min(self.at_once, self.left + (now - self.at) * self.per_second)
        self.at = now
        return max(0.0, (1.0 - self.left) / self.per_second)


class ReviewLimit:
    """Limits the rate of reviews, and the number in flight, for each peer and in total.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all = _Bucket(_ALL_PER_SECOND, _ALL_AT_ONCE, _ALL_AT_ONCE, clock())
        self._peers: BoundedDict[str, _Bucket] = BoundedDict(_PEERS)  # in order of their last review
        self._under_way = 0

    def begin(self, peer: str) -> float:
        """Count a review for a peer and return 0; or return the seconds until one is allowed.

        After 0 the caller must call `end` when the review has ended.
        """
        now = self._clock()
        of_peer = self._peers.get(peer) or _Bucket(_PEER_PER_SECOND, _PEER_AT_ONCE, _PEER_AT_ONCE, now)
        self._peers[peer] = of_peer
        if self._under_way >= _UNDER_WAY:
            return 1.0
        seconds = max(of_peer.wait_seconds(now), self._all.wait_seconds(now))
        if seconds:
            return seconds
        of_peer.left -= 1
        self._all.left -= 1
        self._under_way += 1
        return 0.0

    def end(self) -> None:
        """Record the end of a review."""
        self._under_way -= 1


_TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
_SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_PRIVILEGED_GROUP = "system:masters"
_CACHED_SECONDS = 10.0
_VOUCHED_SECONDS = 3600.0
"""How long a client stays known after the API server accepted it: longer than the interval of any scraper, and as long
as tokens of pods are valid."""
_READ_IN_OUTAGES = "/metrics"
_MAX_CACHED_ANSWERS = 1000
_PATIENCE_SECONDS = 10.0
_SCRAPE_PATIENCE_SECONDS = 2.0
"""The timeout if an earlier result exists: both reviews must end before a scraper's timeout of ten seconds."""
_LOG_SECONDS = 60.0
_LATER = "too many users ask that are not known yet, please try again later"

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


class _TooManyReviewsError(Exception):
    """The limit of reviews is reached."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Access:
    """Admits requests, or rejects them with Kubernetes' messages.

    Args:
        connection: connection to the API server; its user needs `create` on tokenreviews and subjectaccessreviews.
        always_allowed: paths that every client may read without a review; one that ends in `*` is a prefix.
        clock: seconds; results are cached for 10 seconds, as upstream.
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
        self._users = _CachedAnswers[User](clock, _CACHED_SECONDS)
        self._allowed = _CachedAnswers[bool](clock, _CACHED_SECONDS)
        # Separate, so that guessed tokens evict only guessed tokens.
        self._nobody = _CachedAnswers[bool](clock, _CACHED_SECONDS)
        self._denied = _CachedAnswers[bool](clock, _CACHED_SECONDS)
        # Key of a token -> its user; key of a user, or of a user and a request -> the user.
        self._vouched = _CachedAnswers[User](clock, _VOUCHED_SECONDS)
        self._limit = ReviewLimit(clock)
        self._logged_at = -_LOG_SECONDS

    async def refusal(self, request: messages.ServerRequest) -> messages.ServerResponse | None:
        """Return the response that rejects a request; None if it is admitted."""
        path = request.path
        if path in self._paths or path.startswith(self._prefixes):
            return None
        verb = request.method.lower()
        try:
            user = await self._user(request.headers.get("authorization", ""), path, request.peer)
            if user is None:
                return status_answer(401, "Unauthorized", "Unauthorized")
            allowed = await self._may(
                user, "nonResourceAttributes", {"path": path, "verb": verb}, request.peer
            )
        except _TooManyReviewsError as error:
            self._complain_of(request.peer)
            return _later(error.seconds)
        except ApiError:
            return status_answer(500, "InternalError", "Internal Server Error: cannot ask the API server")
        if not allowed:
            message = f'forbidden: User "{user.username}" cannot {verb} path "{path}"'
            return status_answer(403, "Forbidden", message)
        request.is_let_in = user is not _ANONYMOUS
        request.may_read = partial(self._may_read, user, request.peer)
        return None

    async def _may_read(self, user: User, peer: str, read: messages.ReadObject) -> bool:
        """Return whether a user may get an object of the API.

        Raises:
            ApiError: the API server cannot be reached, or the limit of reviews is reached.
        """
        try:
            return await self._may(user, "resourceAttributes", {**read._asdict(), "verb": "get"}, peer)
        except _TooManyReviewsError as error:
            raise ApiError(429, "TooManyRequests", _LATER, retry_after_seconds=error.seconds) from error

    async def _user(self, authorization: str, path: str, peer: str) -> User | None:
        """Return the user of a request; None for an invalid token, or one that cannot be reviewed now.

        Raises:
            _TooManyReviewsError: the limit of reviews is reached.
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

    async def _may(self, user: User, kind: str, attributes: Mapping[str, str], peer: str) -> bool:
        """Return whether a user may do something.

        Args:
            user: the user.
            kind: the field of the SubjectAccessReview with the attributes.
            attributes: what the user wants to do.
            peer: the peer of the user's request.

        Raises:
            ApiError: the API server cannot be reached, and there is no earlier result that is still valid.
            _TooManyReviewsError: the limit of reviews is reached.
        """
        if _PRIVILEGED_GROUP in user.groups:
            return True
        who, path = msgspec.json.encode(user), attributes.get("path", "")
        of_user, key = _digest(who), _digest(who, kind, msgspec.json.encode(attributes))
        if self._allowed.get(key) or self._denied.get(key):
            return bool(self._allowed.get(key))
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            kind: attributes,
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
        """Return the user that the API server accepted last for this key, if that suffices during an outage."""
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
        """Send a review to the API server, unless the limit of reviews for unknown clients is reached.

        A review is not limited if any of the keys was accepted recently.

        Raises:
            ApiError: as for `_review`.
            _TooManyReviewsError: the limit of reviews is reached.
        """
        patience = _PATIENCE_SECONDS if last_word is None else _SCRAPE_PATIENCE_SECONDS
        if any(self._vouched.get(key) for key in keys):
            return await self._review(resource, spec, kind, patience)
        seconds = self._limit.begin(peer)
        if seconds:
            raise _TooManyReviewsError(seconds)
        try:
            return await self._review(resource, spec, kind, patience)
        finally:
            self._limit.end()

    def _complain_of(self, peer: str) -> None:
        now = self._clock()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            logger.warning(
                "Too many requests of unknown clients; some must try again later", extra={"one_from": peer}
            )

    async def _review(self, resource: Resource, spec: dict[str, Any], kind: type[V], patience: float) -> V:
        """Send a review to the API server.

        Raises:
            ApiError: the request failed, or the response is invalid.
        """
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = await self._connection.send(
            Request("POST", resource.path(), msgspec.json.encode(body), timeout_seconds=patience)
        )
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(0, "", f"{resource.kind}: {error}") from error


class _CachedAnswers(Generic[V]):
    """Cached results with a limited lifetime; the oldest are evicted beyond a limit."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        # Key -> end of validity, result.
        self._answers: BoundedDict[bytes, tuple[float, V]] = BoundedDict(_MAX_CACHED_ANSWERS)

    def get(self, key: bytes) -> V | None:
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._clock() < until else None

    def forget(self, key: bytes) -> None:
        self._answers.pop(key, None)

    def put(self, key: bytes, answer: V) -> None:
        self._answers[key] = (self._clock() + self._seconds, answer)


def _digest(*parts: str | bytes) -> bytes:
    """Return a digest of texts, so that neither secrets nor long texts are kept."""
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


def _later(seconds: float) -> messages.ServerResponse:
    """Return the response to try again later, in the API server's format."""
    whole = max(1, math.ceil(seconds))
    answer = status_answer(429, "TooManyRequests", _LATER, details={"retryAfterSeconds": whole})
    return answer._replace(headers={"Retry-After": str(whole)})
