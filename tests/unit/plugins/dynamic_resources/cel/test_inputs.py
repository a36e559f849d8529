"""Which fields an expression reads, by its text."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.dynamic_resources.cel import is_clear, values_of
from plugins.dynamic_resources.cel.selector import DeviceInput, inputs_of
from scheduler.objects.decode import typed_object
from scheduler.objects.dynamic_resources import Device

D = "gpu.example.com"
A, C = f'device.attributes["{D}"]', f'device.capacity["{D}"]'


def attribute(name: str, domain: str | None = D) -> DeviceInput:
    return DeviceInput(False, domain, name)


@pytest.mark.parametrize(
    ("expression", "facts"),
    [
        ('device.driver == "x"', []),
        ("device.allowMultipleAllocations", []),
        ("true", []),
        (f'{A}.model == "h100" && {A}["index"] > 1', [attribute("model"), attribute("index")]),
        (f"{A}.model.startsWith(\"h\") || '{D}' == device.driver", [attribute("model")]),
        (f"{A}.?mig.orValue(false) && {A}[?'off'].orValue(true)", [attribute("mig"), attribute("off")]),
        (f'"mig" in {A} && !({A}.mig)', [attribute("mig")]),
        (f"has({A}.model)", [attribute("model")]),
        (f'{C}.memory.compareTo(quantity("1Gi")) > 0', [DeviceInput(True, D, "memory")]),
        ("device.attributes[device.driver].index == 1", [attribute("index", None)]),
        (f'device\n.attributes [ "{D}" ] . model == "x // device"', [attribute("model")]),
    ],
)  # fmt: skip
def test_lookups_by_name_are_known(expression: str, facts: list[DeviceInput]):
    assert inputs_of(expression) == tuple(facts)


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes.size() == 2",
        f'{A}.exists(name, name == "model")',
        f"{A}.size() > 0",
        f"{A} == {A}",
        f'"{D}" in device.attributes',
        'device.attributes["a" + "b"].c == 1',
        f'{A}["a" + "b"] == 1',
        "device.attributes.none.x == 1",
        f"cel.bind(own, {A}, own.mig)",
        'cel.bind(it, device, it.driver == "x")',
        f'"a\\"b" == {A}.model',
        f'"""x""" == {A}.model',
        f'{A}.model == "x" // and not "y',
        "device.driver.attributes == 1",
        f'device.attributes[?"{D}"].?x.orValue(1) == 1',
    ],
)
def test_an_expression_with_unknown_lookups_is_not_clear(expression: str):
    assert inputs_of(expression) is None


def device(**fields: Any) -> Device:
    return typed_object({"name": "gpu-0", **fields}, Device)


def test_devices_are_compared_by_the_looked_up_fields_only():
    facts = inputs_of(f'{A}.model == "x" && {C}.memory == quantity("1")')
    assert facts is not None

    def values(model: Any, memory: Any, driver: str = D, **more: Any) -> Any:
        attributes = {"model": model, "uuid": {"string": str(id(object()))}}
        each = device(attributes=attributes, capacity={"memory": {"value": memory}}, **more)
        return values_of(facts or (), driver, each)

    same = values({"string": "x"}, "1Gi")
    assert values({"string": "x"}, "1Gi") == same
    assert values({"version": "1.0.0"}, "1Gi") != values({"string": "1.0.0"}, "1Gi")
    others = [
        values({"string": "y"}, "1Gi"), values({"string": "x"}, "2Gi"), values({"string": "x"}, 1),
        values({"string": "x"}, 1.0), values({"string": "x"}, "1Gi", driver="other"),
        values({"string": "x"}, "1Gi", allowMultipleAllocations=True), values({"int": 1}, "1Gi"),
    ]  # fmt: skip
    assert len({same, *others}) == 8
    assert values_of((), "one", device()) != values_of((), "other", device())


def test_a_name_may_be_written_with_its_domain_or_without():
    facts = (attribute("model"),)
    short, full = ({"model": {"string": "x"}}, {f"{D}/model": {"string": "x"}})

    assert values_of(facts, D, device(attributes=short)) == values_of(facts, D, device(attributes=full))
    assert values_of(facts, "other", device(attributes=short)) != values_of(
        facts, "other", device(attributes=full)
    )
    assert values_of(facts, D, device(attributes={**short, **full})) is None, "which of the two counts?"


@pytest.mark.parametrize(
    ("attributes", "clear"),
    [
        ({"a": {"string": ""}, "b": {"int": 0}, "c": {"bool": False}, "d": {"version": "1.0.0"}}, True),
        ({"a": {"string": "x"}, "b": {"version": "none"}}, False),
        ({"a": {"ints": [1]}}, False),
        ({}, True),
    ],
)
def test_a_device_is_clear_if_no_attribute_fails(attributes: Any, clear: bool):
    assert is_clear(device(attributes=attributes)) is clear
