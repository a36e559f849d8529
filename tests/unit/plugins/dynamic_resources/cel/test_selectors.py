"""Results of expressions for a device. The expected results are those of kube-scheduler 1.36's own library."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from plugins.dynamic_resources.cel import CelDevice, CELError, selector
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import Device

DRIVER = "gpu.example.com"
GPU = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "h100"},
        "index": {"int": 1},
        "driverVersion": {"version": "550.1.0"},
        "mig": {"bool": True},
        "off": {"bool": False},
        "k8s.io/x": {"int": 3},
        "ip": {"string": "10.0.0.1"},
    },
    "capacity": {"memory": {"value": "40Gi"}, "k8s.io/slots": {"value": "7"}},
    "allowMultipleAllocations": True,
}
A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


def matches(expression: str, device: dict = GPU) -> bool:
    compiled = selector(expression)
    if isinstance(compiled, CELError):
        raise compiled
    return compiled.evaluate(CelDevice(DRIVER, typed_object(device, Device)))


@pytest.mark.parametrize(
    "expression",
    [
        f'device.driver == "{DRIVER}"',
        "device.allowMultipleAllocations",
        f'{A}.model == "h100"',
        f'{A}["model"] == "h100"',
        f'{A}.model.matches("^h[0-9]+$") && {A}.model.startsWith("h")',
        f'{A}.model in ["a100", "h100"]',
        f"{A}.index > 0 && {A}.index < 1.5",
        f"{A}.mig",
        f"{A}.mig && !{A}.off",
        f"{A}.mig ? true : {A}.nosuch",
        f'cel.bind(own, {A}, own.mig && own.model == "h100")',
        'cel.bind(it, device, it.driver.endsWith(".com"))',
        'device.attributes["k8s.io"].x == 3',
        'device.attributes[device.driver].model == "h100"',
        f'device . attributes [ "{DRIVER}" ] . model == "h100"',
        f'{C}.memory == quantity("40960Mi")',
        f'{C}.memory.compareTo(quantity("39Gi")) > 0',
        f'{C}.memory.isGreaterThan(quantity("39Gi")) && {C}.memory.isLessThan(quantity("41Gi"))',
        f'{C}.memory.sub(quantity("39Gi")).add(1) == quantity("1073741825")',
        'device.capacity["k8s.io"].slots.asInteger() == 7',
        f'{A}.driverVersion.compareTo(semver("550.0.0")) >= 0',
        f'{A}.driverVersion == semver("550.1.0") && {A}.driverVersion != semver("550.1.1")',
        f"{A}.driverVersion.major() == 550 && {A}.driverVersion.minor() == 1 && {A}.driverVersion.patch() == 0",
        f'cidr("10.0.0.0/8").containsIP({A}.ip) && ip({A}.ip).family() == 4',
        f'sets.contains(["h100", "h200"], [{A}.model])',
    ],
)
def test_an_expression_selects_the_device(expression: str):
    assert matches(expression)
    assert not matches(f"!({expression})")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        pytest.param(f'"mig" in {A}', True, id="in a domain"),
        pytest.param(f'"nosuch" in {A}', False, id="not in a domain"),
        pytest.param('"mig" in device.attributes["none"]', False, id="in a domain that is not there"),
        pytest.param(f'"{DRIVER}" in device.attributes', True, id="a domain that is there"),
        pytest.param('"none" in device.attributes', False, id="a domain that is not there"),
        pytest.param("has(device.attributes.none)", True, id="a domain that is not there is an empty one"),
        pytest.param("has(device.attributes.none.x)", False, id="and has nothing"),
        pytest.param('device.attributes[?"none"].hasValue()', True, id="also as an option"),
        pytest.param(
            'device.attributes["none"].?x.orValue(3) == 3', True, id="an option of a missing attribute"
        ),
        pytest.param(f"{A}.?nosuch.orValue(7) == 7", True, id="an option without a value"),
        pytest.param(f'{A}[?"model"].orValue("") == "h100"', True, id="an option with a value"),
        pytest.param("device.attributes.size() == 2", True, id="only domains that are there are counted"),
        pytest.param('device.attributes.exists(d, d == "none")', False, id="iteration"),
        pytest.param("device.attributes.all(d, device.attributes[d].size() > 0)", True, id="each is found"),
        pytest.param(f'{A}.exists(name, name == "model")', True, id="and its names"),
        pytest.param('"slots" in device.capacity["none"]', False, id="of capacities as well"),
        pytest.param("\"device.attributes['none']\" in device.attributes", False, id="not in a text"),
        pytest.param('"a" in device.attributes // device.attributes["a"]', False, id="nor in a comment"),
        pytest.param("true || 1 / 0 == 1", True, id="an error that does not matter"),
        pytest.param("1 / 0 == 1 || true", True, id="on either side"),
    ],
)
def test_a_missing_value_is_looked_up_as_in_upstream(expression: str, said: bool):
    assert matches(expression) is said


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param(f"{A}.nosuch == 1", "no such key: nosuch", id="no such attribute"),
        pytest.param('device.attributes["none"].x', "no such key: x", id="no such domain"),
        pytest.param(f'{C}.nosuch == quantity("1")', "no such key: nosuch", id="no such capacity"),
        pytest.param("1 / 0 == 1", "division by zero", id="division by zero"),
        pytest.param("[1, 2][5] == 1", "index out of bounds: 5", id="beyond the end"),
        pytest.param(f"{A}.model < 3", "no such overload", id="types that do not compare"),
        pytest.param("optional.none().value() == 1", "optional.none() dereference", id="no value"),
        pytest.param(
            'quantity("40 Gi") == quantity("1")',
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="no quantity",
        ),
        pytest.param(
            f'{C}.memory.compareTo(quantity("1Q")) == 0',
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="no suffix",
        ),
        pytest.param(
            'quantity("1mm").isInteger()', "unable to parse quantity's suffix", id="no known suffix"
        ),
        pytest.param(
            'quantity("1500m").asInteger() == 1', "cannot convert value to integer", id="no whole quantity"
        ),
        pytest.param(
            'semver("1.2") == semver("1.2.0")', "No Major.Minor.Patch elements found", id="no version"
        ),
        pytest.param("[].max() == 1", "max called on empty list", id="an empty list"),
        pytest.param(
            f"{A}.model",
            "CEL result of type string could not be converted to bool: "
            "unsupported native conversion from string to 'bool'",
            id="a text",
        ),
        pytest.param(
            f"{A}.index",
            "CEL result of type int could not be converted to bool: "
            "unsupported type conversion from 'int' to bool",
            id="a number",
        ),
    ],
)
def test_a_failed_evaluation_has_the_message_of_upstream(expression: str, words: str):
    with pytest.raises(CELError) as raised:
        matches(expression)

    assert str(raised.value) == f"CEL runtime error: {words}"


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        pytest.param({}, "unsupported attribute value", id="of a type that is not known"),
        pytest.param(
            {"version": "1.2"},
            "parse semantic version: No Major.Minor.Patch elements found",
            id="a version that is none",
        ),
    ],
)
def test_a_device_with_an_invalid_attribute_fails_every_expression(attribute: Any, words: str):
    with pytest.raises(CELError, match=f"^CEL runtime error: attribute a: {words}$"):
        matches("true", {"name": "gpu-0", "attributes": {"a": attribute}})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param(
            "nothing",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing' (in container '')\n"
            " | nothing\n"
            " | ^",
            id="a name that is not known",
        ),
        pytest.param("1 +", "compilation failed: ERROR: <input>:1:4: Syntax error: ", id="no expression"),
        pytest.param("device.driver", "must evaluate to bool or the unknown type, not string", id="a text"),
        pytest.param("1", "must evaluate to bool or the unknown type, not int", id="a number"),
    ],
)
def test_an_invalid_expression_has_the_message_of_upstream(expression: str, words: str):
    found = selector(expression)

    assert str(found).startswith(f"CEL compile error: {words}")


def test_an_expression_over_the_cost_limit_is_stopped():
    expression = "true"
    for depth in range(6):
        expression = f"[1, 2, 3, 4, 5, 6, 7, 8].all(x{depth}, {expression})"

    with pytest.raises(CELError, match="operation cancelled: actual cost limit exceeded"):
        matches(expression)


def test_an_expression_is_compiled_once():
    assert selector("1 == 1") is selector("1 == 1")
    assert selector("nothing at all") is selector("nothing at all")


def test_an_expression_about_drivers_compares_them():
    compiled = selector(f'device.driver == "{DRIVER}"')
    assert not isinstance(compiled, CELError)

    said = [compiled.evaluate(CelDevice(driver, Device())) for driver in (DRIVER, "other", DRIVER, "other")]

    assert said == [True, False, True, False]


def test_the_library_is_imported_with_the_first_expression():
    script = (
        "import sys, plugins.registry\n"
        "from plugins.dynamic_resources.cel import selector\n"
        "assert 'cel_expr_python' not in sys.modules\n"
        "selector('true')\n"
        "assert 'cel_expr_python' in sys.modules\n"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
