"""The functions that Kubernetes adds to the language. The expected results are those of kube-scheduler 1.36's library."""

from __future__ import annotations

import pytest

from plugins.dynamic_resources.cel import CelDevice, CELError, selector
from plugins.dynamic_resources.cel.values import parse_version, parse_version_tolerantly, to_bytes
from scheduler.objects.dynamic_resources import Device
from scheduler.objects.quantity import parse_quantity


def says(expression: str) -> bool:
    compiled = selector(expression)
    if isinstance(compiled, CELError):
        raise compiled
    return compiled.evaluate(CelDevice("d", Device()))


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("1.5k") == quantity("1500")',
        'quantity("1e3") == quantity("1k")',
        'quantity("0") == quantity("0Gi")',
        'quantity("50k").add(quantity("20k")) == quantity("70k")',
        'quantity("50k").sub(20000) == quantity("30k")',
        'quantity("50M").compareTo(quantity("50Mi")) == -1',
        'quantity("200M").compareTo(quantity("0.2G")) == 0',
        'quantity("50Gi").isInteger() && quantity("50Gi").asInteger() == 53687091200',
        'quantity("50k").asApproximateFloat() == 50000.0',
        '!quantity("9999999999999999999999999999999999999G").isInteger()',
        'quantity("9999999999999999999999999999999999999G").asApproximateFloat() > 1.0e40',
        'sign(quantity("-1")) == -1 && sign(quantity("0")) == 0 && sign(quantity("2")) == 1',
        'isQuantity("1.3Gi") && isQuantity("+1") && isQuantity("1e10")',
        '!isQuantity("1,3G") && !isQuantity("Three") && isQuantity("Mi") && !isQuantity("")',
        'semver("1.2.3").compareTo(semver("1.2.4")) == -1',
        'semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))',
        'semver("1.2.3-rc.2").isGreaterThan(semver("1.2.3-rc.1"))',
        'semver("1.2.3+build") == semver("1.2.3")',
        'semver("v1.2", true) == semver("1.2.0")',
        'isSemver("1.2.3") && !isSemver("1.2") && isSemver("v1.2", true) && !isSemver("1.2-a", true)',
        'ip("::1").isLoopback() && ip("0.0.0.0").isUnspecified() && ip("fe80::1").isLinkLocalUnicast()',
        'ip("224.0.0.5").isLinkLocalMulticast() && ip("ff02::1").isLinkLocalMulticast()',
        'ip("10.0.0.1").isGlobalUnicast() && !ip("255.255.255.255").isGlobalUnicast()',
        '!ip("127.0.0.1").isGlobalUnicast() && ip("10.0.0.1").family() == 4 && ip("::1").family() == 6',
        'ip.isCanonical("2001:db8::1") && !ip.isCanonical("2001:DB8::1")',
        'isIP("1.2.3.4") && !isIP("1.2.3") && !isIP("::ffff:1.2.3.4") && !isIP("fe80::1%eth0")',
        'ip("1.2.3.4") == ip("1.2.3.4") && ip("1.2.3.4") != ip("1.2.3.5")',
        'cidr("10.0.0.0/8").containsIP("10.1.2.3") && cidr("10.0.0.0/8").containsIP(ip("10.1.2.3"))',
        '!cidr("10.0.0.0/8").containsIP("11.0.0.1") && !cidr("10.0.0.0/8").containsIP("::1")',
        'cidr("10.0.0.0/8").containsCIDR("10.0.0.0/16") && cidr("10.0.0.0/8").containsCIDR(cidr("10.0.0.0/8"))',
        '!cidr("10.0.0.0/8").containsCIDR("10.0.0.0/7") && !cidr("10.0.0.0/8").containsCIDR("::/0")',
        'cidr("10.1.2.3/8").ip() == ip("10.1.2.3") && cidr("10.1.2.3/8").prefixLength() == 8',
        'cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8")',
        'isCIDR("10.0.0.0/8") && !isCIDR("10.0.0.0") && !isCIDR("10.0.0.0/33") && !isCIDR("10.0.0.0/08")',
        "sets.contains([1, 2], [1]) && !sets.contains([1], [2]) && sets.contains([], [])",
        "sets.equivalent([1, 2], [2, 1, 1]) && !sets.equivalent([1], [1, 2])",
        "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [])",
        "!sets.contains([dyn(1)], [dyn(true)])",
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(3) == -1",
        '[1, 2].isSorted() && !["b", "a"].isSorted() && [1, 3, 2].max() == 3 && ["b", "a"].min() == "a"',
        "[1, 2, 3].sum() == 6 && [1.5, 2.5].sum() == 4.0",
    ],
)
def test_the_expression_is_true(expression: str):
    assert says(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        pytest.param('ip("fe80::1%eth0").family() == 6', "with zone value is not allowed", id="a zone"),
        pytest.param('ip("::ffff:1.2.3.4").family() == 6', "is not allowed", id="an IPv4 address as IPv6"),
        pytest.param('ip("x").family() == 4', "parse error during conversion from string", id="no address"),
        pytest.param('cidr("x").prefixLength() == 4', "parse error during conversion", id="no network"),
    ],
)
def test_the_expression_fails(expression: str, words: str):
    with pytest.raises(CELError, match=words):
        says(expression)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param('semver("1.2.3").compareTo(quantity("1")) == 0', id="different kinds"),
        pytest.param('ip("1.2.3.4").prefixLength() == 4', id="an address for a network"),
        pytest.param('cidr("1.2.3.4/8").family() == 4', id="a network for an address"),
        pytest.param('b"text".major() == 1', id="no type with versions"),
        pytest.param("[dyn(1), dyn('a')].max() == 1", id="a list of different types"),
    ],
)
def test_an_expression_that_kubernetes_would_not_compile_fails_when_evaluated(expression: str):
    with pytest.raises(CELError, match=r"^CEL runtime error: no such overload$"):
        says(expression)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Version string empty"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("a.2.3", 'Invalid character(s) found in major number "a"'),
        ("1.b.3", 'Invalid character(s) found in minor number "b"'),
        ("1.2.c", 'Invalid character(s) found in patch number "c"'),
        ("01.2.3", 'Major number must not contain leading zeroes "01"'),
        ("1.02.3", 'Minor number must not contain leading zeroes "02"'),
        ("1.2.03", 'Patch number must not contain leading zeroes "03"'),
        (".2.3", 'strconv.ParseUint: parsing "": invalid syntax'),
        (f"1.2.{2**64}", f'strconv.ParseUint: parsing "{2**64}": value out of range'),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.2.3-a_b", 'Invalid character(s) found in prerelease "a_b"'),
        ("1.2.3+", "Build meta data is empty"),
        ("1.2.3+a_b", 'Invalid character(s) found in build meta data "a_b"'),
    ],
)
def test_an_invalid_version_has_the_message_of_upstream(text: str, words: str):
    with pytest.raises(ValueError, match=r".") as raised:
        parse_version(text)

    assert str(raised.value) == words


def test_equal_values_have_equal_bytes():
    assert len({to_bytes(parse_quantity(text)) for text in ("1500", "1.5k", "1500000m")}) == 1


def test_versions_are_ordered_as_in_semver():
    ordered = [
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.2.0",
        "1.10.0",
        "2.0.0",
    ]

    assert sorted(map(parse_version, reversed(ordered))) == list(map(parse_version, ordered))


@pytest.mark.parametrize(
    ("text", "read"),
    [("v1", "1.0.0"), ("1.2", "1.2.0"), ("01.02.003", "1.2.3"), ("0.0", "0.0.0"), ("1.2.3-a+b", "1.2.3-a")],
)
def test_a_version_is_parsed_tolerantly(text: str, read: str):
    assert str(parse_version_tolerantly(text)) == read


def test_a_short_version_has_no_prerelease():
    with pytest.raises(ValueError, match="short version cannot contain PreRelease/Build meta data"):
        parse_version_tolerantly("1.2-a")
