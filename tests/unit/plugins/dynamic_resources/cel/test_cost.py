"""No expression that the API server accepts takes long: it is cheap, or it is rejected with a reason."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from plugins.dynamic_resources.cel import CelDevice, CELError, cost, selector
from plugins.dynamic_resources.cel.functions import FUNCTIONS
from plugins.dynamic_resources.cel.selector import environment
from scheduler.objects.caches import Remembered
from scheduler.objects.dynamic_resources import Device, DeviceAttribute, DeviceCapacity

if TYPE_CHECKING:
    from types import ModuleType

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string_value="x" * 64),
        "version": DeviceAttribute(version_value="1.2.3"),
        **{f"domain-{index}.example.com/{'k' * 30}": DeviceAttribute(int_value=index) for index in range(28)},
    },
    capacity={"memory": DeviceCapacity(value="40Gi"), "cores": DeviceCapacity(value="7")},
)
MODEL = f'device.attributes["{DRIVER}"].model'


def ones(count: int) -> str:
    return f"[{','.join('1' * count)}]"


def text(length: int) -> str:
    return f'"{"a" * length}"'


def bound(times: int, doubled: str, first: str, result: str) -> str:
    """Name a value, then expressions that double it, `times` times."""
    return f"cel.bind(a, {first}, " + f"cel.bind(a, {doubled}, " * times + result + ")" * (times + 1)


def filled(unit: str, joined_by: str, length: int = cost.MAX_LENGTH) -> str:
    return joined_by.join([unit] * ((length + len(joined_by)) // (len(unit) + len(joined_by))))


# Each at the limits of the API server: 10 KiB of text.
WORST = {
    "a flat list": f"[{filled('1', ',', 10_200)}].size() > 0",
    "a flat map": "{" + ",".join(f"{key}:1" for key in range(1300)) + "}.size() > 0",
    "a long conjunction": filled("true", "&&"),
    "a long disjunction": filled("false", "||"),
    "many look-ups": filled(f'{MODEL} == ""', "||"),
    "has": filled("has(device.a)", "||"),
    "in": filled("1 in [1]", "&&"),
    "a long text": f'{text(10_000)} == ""',
    "unary operators": "!" * 10_000 + "true",
    "a nested list": "[" * 5000 + "]" * 5000,
    "a deep ternary": "true ? " * 700 + "true" + " : true" * 700,
    "nested loops": f"{ones(99)}.all(i, {ones(99)}.all(j, i + j > 0))",
    "nested loops of many comparisons": f"{ones(99)}.all(i, {ones(99)}.all(j, {filled('i==1', '&&', 9500)}))",
    "loops in loops": "".join(f"{ones(8)}.all(x{depth}, " for depth in range(7)) + "true" + ")" * 7,
    "map": f"{ones(5000)}.map(x, x).size() > 0",
    "filter": f"{ones(4900)}.filter(x, true).size() > 0",
    "a nested map": f"{ones(2000)}.map(x, {ones(2000)}.map(y, y)).size() > 0",
    "a doubled text": bound(24, "a + a", text(10), "a.size() > 0"),
    "a doubled list": bound(22, "a + a", ones(10), "a.size() > 0"),
    "a doubled nested list": bound(25, "[a, a]", ones(10), "a == a"),
    "a doubled nested map": bound(25, "{1: a, 2: a}", ones(10), "a == a"),
    "a doubled list in Python": bound(20, "a + a", ones(10), "a.sum() > 0"),
    "contains": f'{text(5000)}.contains("{"a" * 2500}b")',
    "contains of doubled texts": bound(18, "a + a", text(10), 'a.contains(a + "b")'),
    "lastIndexOf": f'{text(5000)}.lastIndexOf("b{"a" * 2500}") == 0',
    "replace": f'{text(3000)}.replace("a", {text(3000)}).size() == 0',
    "a chain of replace": text(10) + f'.replace("a", {text(10)})' * 9 + ".size() == 0",
    "replace of nothing": f'{text(3000)}.replace("", {text(3000)}).size() == 0',
    "split": f'{text(9000)}.split("").size() == 0',
    "split and map": f'{text(9000)}.split("").map(c, c).size() == 0',
    "join": f"[{filled(chr(34) * 2, ',', 5000)}].join({text(5000)}).size() == 0",
    "format": f'"{"%.1000f" * 500}".format({ones(500)}).size() == 0',
    "format of many digits": '"%.999999999f".format([1.0]).size() == 0',
    "charAt in loops": f"cel.bind(s, {text(9000)}, {ones(90)}.all(i, {ones(90)}.all(j, s.charAt(8999) == s)))",
    "quantities": filled('isQuantity("1e9999")', "&&"),
    "long quantities": filled('isQuantity("1234567890123456789e9999")', "&&"),
    "sums of long quantities": filled('quantity("1e999").add(quantity("1n")) == b""', "||"),
    "quantities in loops": f'{ones(90)}.all(i, {ones(90)}.all(j, isQuantity("1")))',
    "a quantity of many digits": f'isQuantity("{"7" * 10_000}")',
    "an exponent of many digits": f'isQuantity("1e{"7" * 10_000}")',
    "versions": f'isSemver("1.2.3-{filled("1", ".", 10_000)}")',
    "comparisons of versions": filled(f'semver("1.2.3-{"1." * 500}1").isLessThan(semver("1.2.4"))', "&&"),
    "a version of many digits": f'isSemver("{"1" * 10_000}.1.1")',
    "addresses": filled('isIP("::")', "&&"),
    "a long address": f'isIP("{"1" * 10_000}")',
    "networks": filled('cidr("::/0").containsIP("::")', "&&"),
    "a long network": f'isCIDR("::/{"1" * 10_000}")',
    "sets": f"sets.equivalent([{','.join(map(str, range(1100)))}], [{','.join(map(str, range(1100, 0, -1)))}])",
    "sets of the same": f"sets.contains({ones(2400)}, {ones(2400)})",
    "sets in loops": f"{ones(40)}.all(i, {ones(40)}.all(j, sets.contains({ones(1000)}, {ones(1000)})))",
    "indexOf of a list": f"{ones(4900)}.indexOf(2) == 0",
    "a pattern of nested repetitions": f'{text(9000)}.matches("(a*)*b")',
    "a pattern of many repetitions": f'{text(9000)}.matches("(a?){{1000}}a{{1000}}")',
    "a pattern of repeated repetitions": f'{text(9000)}.matches("((a{{1,100}}){{1,10}})b")',
    "a pattern of letters": '"a".matches("\\\\pL{1000}")',
    "a pattern of many letters": f'"a".matches("{filled(chr(92) * 2 + "pL", "", 8000)}")',
    "a pattern of letters by name": '"a".matches("(\\\\p{Greek}{30}|\\\\P{Han}{30}){30}")',
    "a pattern of classes": f'{text(9000)}.matches("([^a]|.){{1000}}")',
    "a pattern of alternatives": f'"a".matches("{filled("ab", "|", 9000)}")',
    "patterns in loops": f'{ones(90)}.all(i, {ones(90)}.all(j, "a".matches("^a.*$")))',
    "a computed pattern": '"a".matches("\\\\pL{10" + "00}")',
    "a pattern of the device": f'"a".matches({MODEL})',
    "optMap": "optional.of(1)" + ".optMap(a, a)" * 30 + ".hasValue()",
    "optFlatMap": "optional.of(1)" + ".optFlatMap(a, optional.of(a))" * 30 + ".hasValue()",
    "a long duration": f'duration("{"1h" * 5000}") == duration("1h")',
    "a duration of many digits": f'duration("0.{"1" * 9900}h") == duration("1h")',
    "a long integer": f'int("{"1" * 10_000}") == 1',
    "a long number": "1" * 10_000 + ".0 == 1.0",
    "errors": "@" * 10_000,
    "unknown names": filled("a", "||"),
    "an open text": '"\\"' * 3400,
    "blanks": f'device.attributes["{DRIVER}"].{" " * 10_000}size() == 0',
    "blanks in brackets": f'device.attributes["{DRIVER}"][{" " * 10_000}device.driver] == 1',
}


def cpu_seconds(expression: str) -> float:
    """Return the time to compile an expression and to evaluate it once."""
    selector.cache_clear()
    _module()._COMPILED.clear()
    started = time.thread_time()
    compiled = selector(expression)
    if not isinstance(compiled, CELError):
        with suppress(CELError):
            compiled.evaluate(CelDevice(DRIVER, DEVICE))
    return time.thread_time() - started


def _module() -> ModuleType:
    return import_module("plugins.dynamic_resources.cel.selector")


@pytest.fixture(scope="module")
def ordinary() -> float:
    """The time of 1000 plain comparisons: a few milliseconds."""
    compiled = selector(f'{MODEL} == "h100"')
    assert not isinstance(compiled, CELError)
    subject = CelDevice(DRIVER, DEVICE)
    started = time.thread_time()
    for _ in range(1000):
        compiled.evaluate(subject)
    return time.thread_time() - started


@pytest.mark.parametrize("name", WORST)
def test_no_expression_takes_long_to_evaluate(name: str, ordinary: float):
    assert len(WORST[name]) < cost.MAX_LENGTH + 100
    assert cpu_seconds(WORST[name]) < 20 * ordinary


def estimated(expression: str) -> int:
    """Return the estimated cost of an expression."""
    compiled = environment().compile(expression)
    estimate = cost._Estimate()
    estimate.of(dict(cost._fields(dict(cost._fields(compiled.serialize()))[2]))[4], cost._VARIABLES)
    return estimate.cost


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        f'{MODEL} == "h100" && device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("10Gi"))',
        f'device.attributes["{DRIVER}"].version.compareTo(semver("1.2.3")) >= 0',
        f'cel.bind(gpu, device.attributes["{DRIVER}"], gpu.model == "h100" && gpu.index < 4)',
        f'{MODEL}.lowerAscii().matches("^.*[ah]100-[0-9]{{1,3}}gb.*$")',
        f'{MODEL} in ["a100", "h100", "b200"]',
        "device.attributes.exists(d, device.attributes[d].exists(n, n == 'model'))",
        f'device.attributes["{DRIVER}"].all(n, device.attributes["{DRIVER}"][n] != "x")',
        f'device.attributes["{DRIVER}"].?model.orValue("").startsWith("h")',
        f'{MODEL}.split("-").map(part, part.upperAscii()).join("_").contains("H100")',
        f'sets.contains(["a", "b"], [{MODEL}])',
        f'optional.of({MODEL}).optMap(m, m.replace("-", "")).orValue("") == ""',
        f'ip("10.0.0.1") == cidr("10.0.0.0/8").ip() || {MODEL}.size() > 3',
        f'"%s-%d".format([{MODEL}, 1]) == "h100-1"',
    ],
)
def test_an_ordinary_expression_is_far_below_the_limit(expression: str):
    assert not isinstance(selector(expression), CELError)
    assert estimated(expression) < cost.MAX_COST / 20


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (WORST["a doubled text"], "it may cost "),
        (WORST["a computed pattern"], r"it calls matches\(\) with a pattern that is no constant"),
        (WORST["optMap"], r"optMap\(\) and optFlatMap\(\) are applied to too many results of each other"),
        ("true ||" + " " * cost.MAX_LENGTH + "true", "it has 10251 bytes, more than 10240"),
        (
            f'timestamp("2020-01-01T00:00:00Z").getHours({text(65)}) == 1',
            "it names a time zone in more than 64",
        ),
    ],
)
def test_an_expression_that_is_too_expensive_is_refused_with_the_reason(expression: str, reason: str):
    error = selector(expression)
    assert isinstance(error, CELError)
    upstream = "^CEL runtime error: operation cancelled: actual cost limit exceeded: "
    with pytest.raises(CELError, match=f"{upstream}the expression is too expensive: {reason}"):
        raise error


def test_a_function_without_a_known_bound_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(cost._PRICES, "size")
    selector.cache_clear()
    assert "it calls size(), of which no bound is known" in str(selector("[1].size() == 1 && 2 == 2"))


def test_all_functions_of_kubernetes_have_a_bound():
    assert {function.name for function in FUNCTIONS} <= cost._PRICES.keys()


OPTIONALS = [
    "[optional.of(1)].indexOf(optional.of(1)) == 0",
    "sets.contains([optional.of(1)], [optional.of(1)])",
    "[{'a': optional.none()}].lastIndexOf({'a': optional.none()}) == 0",
    "dyn([device.?driver]).min() == 1",
    "[1].map(x, optional.of(x)).indexOf(optional.of(1)) == 0",
    "cel.bind(a, [optional.of(optional.of(1))], a.indexOf(a[0]) == 0)",
    "optional.of([optional.of(1)]).value().indexOf(optional.of(1)) == 0",
    "(true ? [optional.of(1)] : []).indexOf(optional.of(1)) == 0",
    "([optional.of(1)] + []).indexOf(optional.of(1)) == 0",
    "[[optional.of(1)]].first().value().indexOf(optional.of(1)) == 0",
    "dyn(optional.of(1))",
]


def test_optional_values_in_functions_of_kubernetes_do_not_crash_the_process():
    program = """
import json, sys
from plugins.dynamic_resources.cel import CELError, CelDevice, selector
from scheduler.objects.dynamic_resources import Device
for expression in json.load(sys.stdin):
    compiled = selector(expression)
    if not isinstance(compiled, CELError):
        try:
            compiled = compiled.evaluate(CelDevice("gpu.example.com", Device(name="gpu-0")))
        except CELError as error:
            compiled = error
    print(compiled)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(OPTIONALS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0
    said = ended.stdout.splitlines()
    assert len(said) == len(OPTIONALS)
    assert all("cannot be called with optional values" in each for each in said[:-1]), said
    assert "could not be converted to bool" in said[-1]


@pytest.mark.parametrize(
    "expression",
    [
        f'isQuantity(device.attributes["{DRIVER}"].?model.orValue("1"))',
        f'[device.attributes["{DRIVER}"].?size.orValue(1)].max() == 1',
        f'device.?attributes["{DRIVER}"].?size.orValue(1) == 1',
    ],
)
def test_the_content_of_an_optional_value_may_be_passed_on(expression: str):
    assert not isinstance(selector(expression), CELError)


def test_sets_compare_values_as_the_language_does():
    for expression, expected in (
        (
            "sets.contains([1, 2.0, 'a', b'a', [1, 2], {'a': [1]}], [2, 1.0, b'a', [1.0, 2], {'a': [1]}])",
            True,
        ),
        ("sets.contains([true], [1])", False),
        ("sets.contains([[true]], [[1]])", False),
        ("sets.contains(['a'], [b'a'])", False),
        ("sets.equivalent([null], [null, null])", True),
        ("sets.intersects([type(1), type('')], [type(2)])", True),
        ("sets.intersects([type('')], [type(2)])", False),
        ("sets.contains([quantity('1'), quantity('2')], [quantity('1000m')])", True),
    ):
        assert environment().compile(expression).eval(data={}).value() is expected, expression


def test_compiled_expressions_are_cached_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch):
    module = _module()
    monkeypatch.setattr(module, "_COMPILED", Remembered(4 * 1024 * 1024))
    compiled = [selector(f"{ones(450)}.size() > {number}") for number in range(40)]
    assert 0 < len(module._COMPILED) < 40
    subject = CelDevice(DRIVER, DEVICE)
    assert all(each.evaluate(subject) is (number < 450) for number, each in enumerate(compiled))


def test_error_messages_are_short():
    assert len(str(selector("@" * 10_000))) < 5000
    missing = selector(f'{{"a": true}}[{text(5000)} + {text(4000)}]')
    with pytest.raises(CELError, match=r"^CEL runtime error: no such key: a{4000}"):
        missing.evaluate(CelDevice(DRIVER, DEVICE))
