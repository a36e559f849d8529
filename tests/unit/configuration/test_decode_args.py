from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.configuration.profile_plugins import decode_args, find_args
from scheduler.errors import ConfigurationError, FieldError
from scheduler.objects.wording import Duration
from tests.unit.configuration.documents import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "profiles[0].pluginConfig[2].args"


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class Point(Struct, frozen=True, kw_only=True):
    utilization: Annotated[int, msgspec.Meta(ge=0, le=100)]
    score: Annotated[int, msgspec.Meta(ge=0, le=10)]


class Mode(Enum):
    PACK = "Pack"
    SPREAD = "Spread"


class Args(Struct, frozen=True, kw_only=True):
    shape: tuple[Point, ...] = ()
    mode: Mode = Mode.PACK
    level: Literal["low", "high"] = "low"
    price_per_hour: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    bind_timeout: Duration = Duration(0)
    labels: dict[str, str] = {}
    zones: frozenset[str] = frozenset()
    hosts: Annotated[list[str], msgspec.Meta(min_length=1, max_length=2)] = msgspec.field(
        default_factory=lambda: ["a"]
    )
    key: Annotated[str, msgspec.Meta(min_length=1, pattern="^[a-z]+$")] = "a"
    limit: int | str | None = None
    dry_run: bool = False
    token: bytes = b""
    anything: Any = None

    def faults(self) -> Iterator[FieldError]:
        for i in range(1, len(self.shape)):
            if self.shape[i - 1].utilization >= self.shape[i].utilization:
                yield FieldError(f"shape[{i}].utilization", "must be greater than the one before")


def decoded(args: dict[str, Any]) -> Args:
    return decode_args(Args, args, plugin="Gpu", path=PATH)


def outcome(args: dict[str, Any]) -> Args | ConfigurationError:
    try:
        return decoded(args)
    except ConfigurationError as error:
        return error


def problems(args: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        decoded(args)
    return [str(error).removeprefix(f"{PATH}.") for error in caught.value.errors]


def test_missing_arguments_take_the_defaults_of_their_type() -> None:
    assert decoded({}) == Args()


def test_arguments_of_every_type_are_read() -> None:
    assert decoded(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "GpuArgs",
            "shape": [{"utilization": 0, "score": 10}, {"utilization": 100.0, "score": 0}],
            "mode": "Spread",
            "level": "high",
            "pricePerHour": 3,
            "bindTimeout": "1m30s",
            "labels": {"a.b/c": "d"},
            "zones": ["a", "b", "a"],
            "hosts": ["x", "y"],
            "key": "abc",
            "limit": "10%",
            "dryRun": True,
            "token": "aGVs\nbG8=",
            "anything": {"x": [1, None]},
        }
    ) == Args(
        shape=(Point(utilization=0, score=10), Point(utilization=100, score=0)),
        mode=Mode.SPREAD,
        level="high",
        price_per_hour=3.0,
        bind_timeout=Duration(90_000_000_000),
        labels={"a.b/c": "d"},
        zones=frozenset({"a", "b"}),
        hosts=["x", "y"],
        key="abc",
        limit="10%",
        dry_run=True,
        token=b"hello",
        anything={"x": [1, None]},
    )


def test_null_is_a_missing_argument() -> None:
    assert decoded({"mode": None, "labels": None, "limit": None}) == Args()


@pytest.mark.parametrize(
    ("args", "messages"),
    [
        ({"shape": [{"utilization": 0, "score": 12}]}, ["shape[0].score: must be 0 to 10, was 12"]),
        ({"shape": [{"utilization": 0}]}, ["shape[0].score: is missing"]),
        ({"shape": [5]}, ["shape[0]: must be a mapping, was 5"]),
        ({"shape": {"score": 1}}, ["shape: must be a list, was a mapping"]),
        ({"shap": []}, ['shap: unknown field, did you mean "shape"?']),
        ({"SHAPE": []}, ['SHAPE: unknown field, did you mean "shape"?']),
        ({"price_per_hour": 1}, ['price_per_hour: unknown field, did you mean "pricePerHour"?']),
        ({"qqq": []}, ["qqq: unknown field"]),
        ({"a.b": []}, [f'{PATH}["a.b"]: unknown field']),
        ({"mode": "pack"}, ['mode: must be one of "Pack", "Spread", was "pack", did you mean "Pack"?']),
        ({"mode": 1}, ['mode: must be one of "Pack", "Spread", was 1']),
        ({"level": "middle"}, ['level: must be one of "high", "low", was "middle"']),
        ({"pricePerHour": 0}, ["pricePerHour: must be greater than 0, was 0"]),
        ({"pricePerHour": True}, ["pricePerHour: must be a number, was true"]),
        ({"bindTimeout": 5}, ["bindTimeout: must be a duration as in 15s or 1m30s, was 5"]),
        ({"labels": {"x/y": 1}}, ['labels["x/y"]: must be text, was 1']),
        ({"hosts": []}, ["hosts: must have at least 1 entries, has 0"]),
        ({"hosts": ["a", "b", "c"]}, ["hosts: must have at most 2 entries, has 3"]),
        ({"key": ""}, ["key: must not be empty"]),
        ({"key": "A"}, ['key: must match ^[a-z]+$, was "A"']),
        ({"limit": []}, ["limit: must be an integer or text, was a list"]),
        ({"limit": 1.5}, ["limit: must be an integer or text, was 1.5"]),
        ({"dryRun": "true"}, ['dryRun: must be true or false, was "true"']),
        ({"token": "a secret!"}, ["token: must be base64 text"]),
        (
            {"apiVersion": "v1", "kind": "CpuArgs"},
            [
                'apiVersion: must be "kubescheduler.config.k8s.io/v1", was "v1"',
                'kind: must be "GpuArgs", was "CpuArgs"',
            ],
        ),
        (
            {"dryRun": 1, "mode": "x", "shape": [{"utilization": -1, "score": "a"}]},
            [
                "shape[0].utilization: must be 0 to 100, was -1",
                'shape[0].score: must be an integer, was "a"',
                'mode: must be one of "Pack", "Spread", was "x"',
                "dryRun: must be true or false, was 1",
            ],
        ),
        (
            {"shape": [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}]},
            ["shape[1].utilization: must be greater than the one before"],
        ),
    ],
)
def test_invalid_arguments_are_all_named_at_once(args: dict[str, Any], messages: list[str]) -> None:
    assert problems(args) == messages


def test_the_path_of_an_error_starts_at_the_root() -> None:
    with pytest.raises(ConfigurationError) as caught:
        decoded({"shape": [{"utilization": 0, "score": 1}, {"utilization": 1, "score": 12}]})
    assert str(caught.value) == "profiles[0].pluginConfig[2].args.shape[1].score: must be 0 to 10, was 12"


def test_a_type_may_reject_one_of_its_values() -> None:
    class Range(Struct, frozen=True, kw_only=True):
        low: int = 0
        high: int = 10

        def __post_init__(self) -> None:
            if self.low > self.high:
                message = f"low ({self.low}) must not be above high ({self.high})"
                raise ValueError(message)

    with pytest.raises(ConfigurationError) as caught:
        decode_args(Range, {"low": 11}, plugin="Gpu", path="args")
    assert str(caught.value) == "args: low (11) must not be above high (10)"


def test_a_type_may_reject_its_values_as_a_whole() -> None:
    class Hosts(Struct, frozen=True, kw_only=True):
        def faults(self) -> Iterator[FieldError]:
            yield FieldError("", "must name a host")
            yield FieldError("[0]", "is the first")

    with pytest.raises(ConfigurationError) as caught:
        decode_args(Hosts, {}, plugin="Gpu", path="args")
    assert str(caught.value) == "args: must name a host\nargs[0]: is the first"


def test_a_type_may_have_a_field_named_kind() -> None:
    class Kinds(Struct, frozen=True, kw_only=True):
        kind: str = ""

    assert decode_args(Kinds, {"kind": "large"}, plugin="Gpu", path="args") == Kinds(kind="large")


def test_a_field_type_without_a_representation_in_files_is_an_error_of_the_author() -> None:
    class Odd(Struct, frozen=True, kw_only=True):
        when: complex = 0j

    with pytest.raises(TypeError, match="cannot be read from a configuration"):
        decode_args(Odd, {"when": 1}, plugin="Gpu", path="args")


def test_arguments_are_found_with_their_place_in_the_file() -> None:
    profile = parsed(
        """
            profiles:
            - pluginConfig:
              - name: Gpu
                args: {mode: Spread}
            """
    ).settings.profiles[0]
    assert find_args(profile, "Gpu", "profiles[0]") == (
        {"mode": "Spread"},
        "profiles[0].pluginConfig[0].args",
    )
    assert find_args(profile, "Cpu", "profiles[0]") == ({}, "profiles[0].pluginConfig")


_TEXT = st.sampled_from(["", "a", "A", "Pack", "low", "10", "1s", "score"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 103) | st.sampled_from([0.5, 2.0, -1.0, 1e300]) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=4,
)
_POINTS = st.lists(st.fixed_dictionaries({"utilization": st.integers(-1, 101), "score": _JSON}), max_size=3)
_FIELDS = st.sampled_from([*Args.__struct_encode_fields__, "kind", "apiVersion", "shap"])


@given(st.dictionaries(_FIELDS, _JSON | _POINTS, max_size=4))
def test_any_arguments_are_decoded_or_refused_as_by_msgspec(args: dict[str, Any]) -> None:
    # msgspec's own strict conversion of the same values, where the rules are the same. (msgspec differs for
    # 2.0 as `int | str`.)
    apart = {"kind", "apiVersion", "bindTimeout", "token", "limit"}
    nulls = {key for key in Args.__struct_encode_fields__ if args.get(key) is None}
    plain = {key: value for key, value in args.items() if key not in apart | nulls}
    result = outcome(args)
    if isinstance(result, Args):
        judged = msgspec.convert(plain, Args)
        assert msgspec.structs.replace(result, bind_timeout=Duration(0), token=b"", limit=None) == judged
        return
    paths = {fault.path for fault in result.errors}
    assert all(path.startswith(f"{PATH}.") for path in paths)
    if paths - {f"{PATH}.{key}" for key in apart} and "the one before" not in str(result):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(plain, Args)
