"""Intents to attributes: the maps themselves, and what the resolver makes of a profile. Pure."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from agent.bios.intent_map import IntentMap, load_maps
from agent.bios.resolve import Machine, Resolution, resolve
from agent.bmc_profile import BiosIntent, Bmc
from agent.node_profile import NodeProfile
from agent.provision.bios_plan import make_plan, pending_of
from agent.provision.bios_registry import parse_registry

MAPS = load_maps()
DELL = Machine("Dell Inc.", "PowerEdge XE9685L", "1.3.2")
NAMES = (
    "SysProfile", "ProcCStates", "PcieAspmL1", "NumaNodesPerSocket", "SriovGlobalEnable", "IommuSupport",
    "ProcX2Apic", "MmioAbove4Gb",
)  # fmt: skip


def made(
    profile: dict[str, Any], machine: Machine | None = DELL, names: Any = NAMES, **how: Any
) -> Resolution:
    return resolve(Bmc.model_validate(profile), machine, names, **how)


def settings(found: Resolution) -> dict[str, Any]:
    assert not found.faults, found.faults
    return {want.name: want.values[0] for want in found.wants}


@pytest.mark.parametrize("one", MAPS, ids=[each.name for each in MAPS])
def test_a_map_speaks_of_intents_that_there_are(one: IntentMap) -> None:
    assert one.sources and not one.checked
    for intent, values in one.intents.items():
        field = BiosIntent.model_fields[intent]
        options = {str(each) for part in typing.get_args(field.annotation) for each in typing.get_args(part)}
        assert values and set(values) <= options, intent


def test_no_two_maps_of_ours_differ_about_a_machine() -> None:
    assert len({each.name for each in MAPS}) == len(MAPS)
    for model in ("XE9680", "XE9685L", "XE9785", "R7625", "R760xa"):
        fitting = [each.name for each in MAPS if each.fits("Dell Inc.", f"PowerEdge {model}", "1.0.0")]
        assert len(fitting) == 1, model
    for maker, model in (
        ("Supermicro", "AS -8125GS-TNHR"), ("Supermicro", "SYS-821GE-TNHR"),
        ("HPE", "ProLiant XL675d Gen10 Plus"), ("HPE", "ProLiant DL380a Gen11"),
        ("HPE", "ProLiant Compute XD685"), ("Lenovo", "ThinkSystem SR675 V3"),
    ):  # fmt: skip
        assert len([each for each in MAPS if each.fits(maker, model, "1.0")]) == 1, model


def test_intents_become_attributes_and_explicit_ones_win() -> None:
    found = made(
        {"bios": {"ProcCStates": "Autonomous"}, "bios_intent": {"c_states": "disabled", "sriov": "enabled"}}
    )
    assert settings(found) == {
        "ProcCStates": "Autonomous", "SriovGlobalEnable": "Enabled", "SysProfile": "Custom",
    }  # fmt: skip
    assert {want.name: want.field for want in found.wants}["ProcCStates"] == "bmc.bios.ProcCStates"


def test_a_profile_of_the_vendor_sees_to_its_parts_by_itself() -> None:
    found = made({"bios_intent": {"c_states": "disabled", "performance_profile": "max_performance"}})
    assert settings(found) == {"ProcCStates": "Disabled", "SysProfile": "PerfOptimized"}
    assert [want.name for want in found.wants if want.follows] == ["ProcCStates"]


NO_MAP = (
    "the map 'Dell AMD' does not know it for Dell Inc. PowerEdge XE9685L BIOS 1.3.2; write this BIOS's own"
)
TWO = {"c_states": "disabled", "performance_profile": "balanced"}
SRIOV = {"bios_intent": {"sriov": "enabled"}}


@pytest.mark.parametrize(
    ("profile", "machine", "words"),
    [
        ({"bios_intent": TWO}, DELL, "needs SysProfile as Custom, but"),
        ({"bios_intent": {"acs": "disabled"}}, DELL, NO_MAP),
        (SRIOV, Machine("Acme", "X1", "0.1"), "no map is about Acme X1 BIOS 0.1"),
        (SRIOV, None, "does not say what machine"),
        ({"bios": {"SriovGlobal": "Enabled"}}, None, "no attribute SriovGlobal; near: SriovGlobalEnable"),
    ],
)
def test_what_cannot_be_is_one_line(profile: dict[str, Any], machine: Machine | None, words: str) -> None:
    faults = made(profile, machine).faults
    assert len(faults) == 1 and words in str(faults[0]) and "\n" not in str(faults[0])


def test_names_with_a_number_or_other_signs_are_known() -> None:
    names = ("SR-IOVSupport#0048", "IOMMU#0196", "ASPMSupport_004B", "IOMMUMode", "Above4GDecoding")
    amd = Machine("Supermicro", "AS -8125GS-TNHR", "3.1")
    found = made({"bios_intent": {"sriov": "enabled", "iommu": "disabled", "aspm": "disabled"}}, amd, names)
    assert settings(found) == {
        "SR-IOVSupport#0048": "Enabled", "IOMMU#0196": "Disabled", "ASPMSupport_004B": "Disabled",
    }  # fmt: skip
    explicit = made({"bios": {"IOMMU": "Enabled"}}, None, ("IOMMU#0196", "IOMMU#0197"))
    assert "stands for IOMMU#0196, IOMMU#0197" in str(explicit.faults[0])


def test_one_attribute_under_two_names_of_a_profile_is_no_choice_of_ours() -> None:
    told = made({"bios": {"IOMMU": "Enabled", "IOMMU#0196": "Disabled"}}, names=["IOMMU#0196"]).faults
    assert "needs IOMMU#0196 as Disabled, but bmc.bios.IOMMU needs it as Enabled" in str(told[0])
    assert not made({"bios": {"IOMMU": 1, "IOMMU#0196": "1"}}, names=["IOMMU#0196"]).faults


def test_a_map_counts_for_its_range_of_versions_and_two_may_not_differ() -> None:
    def one(name: str, value: str, **how: str) -> IntentMap:
        given = {"manufacturers": "Acme", "models": "X.*", "sources": ["test"], "name": name, **how}
        return IntentMap.model_validate({**given, "intents": {"sriov": {"enabled": {"Sriov": value}}}})

    maps = (one("old", "On", bios_below="2.0"), one("new", "Enabled", bios_min="2.0"))

    def by(version: str, maps: tuple[IntentMap, ...] = maps) -> Resolution:
        return made(SRIOV, Machine("ACME", "X1", version), ("Sriov",), maps=maps)

    for version, value in (("1.9", "On"), ("2.0", "Enabled"), ("2.10", "Enabled")):
        assert settings(by(version)) == {"Sriov": value}
    assert "no map" in str(by("unknown").faults[0])
    both = (one("first", "On"), one("second", "Enabled"))
    assert "'first' and 'second' differ" in str(by("1", both).faults[0])


def _enum(name: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"AttributeName": name, "Type": "Enumeration", "Value": [{"ValueName": v} for v in values], **more}


def _map(target: str, prop: str, value: Any, *terms: tuple[str, str, Any]) -> dict[str, Any]:
    sources = [
        {
            "MapFromAttribute": name, "MapFromProperty": "CurrentValue", "MapFromCondition": condition,
            "MapFromValue": wanted, "MapTerms": "AND",
        }
        for name, condition, wanted in terms
    ]  # fmt: skip
    inner = {"MapFrom": sources, "MapToAttribute": target, "MapToProperty": prop, "MapToValue": value}
    return {"Type": "Map", "DependencyFor": target, "Dependency": inner}


_BOOT = [{"ValueName": "0", "ValueDisplayName": "Quick"}, {"ValueName": "1", "ValueDisplayName": "Full"}]
_DEPTH = {"Type": "Integer", "LowerBound": 0, "UpperBound": 16, "ScalarIncrement": 4}
ENTRIES = {
    "Attributes": [
        _enum("Profile", "Fast", "Custom"),
        _enum("Idle", "On", "Off", ReadOnly=True),
        {"AttributeName": "Depth", **_DEPTH},
        {"AttributeName": "Boot", "Type": "Enumeration", "Value": _BOOT},
        "nonsense",
        {"AttributeName": 7},
    ],
    "Dependencies": [
        _map("Idle", "ReadOnly", True, ("Profile", "NEQ", "Custom")),
        _map("Idle", "CurrentValue", "Off", ("Profile", "EQU", "Fast")),
        _map("Boot", "GrayOut", True, ("Depth", "GEQ", 8), ("Profile", "EQU", "Fast")),
        {"Type": "Script"},
        3,
    ],
}
REGISTRY = parse_registry({"RegistryEntries": ENTRIES})
NOW = {"Profile": "Balanced", "Idle": "On", "Depth": 4, "Boot": "Quick"}


def plan(bios: dict[str, Any], pending: dict[str, Any] | None = None, now: dict[str, Any] = NOW) -> Any:
    return make_plan(made({"bios": bios}, None, tuple(now)).wants, now, pending or {}, REGISTRY)


@pytest.mark.parametrize(
    ("bios", "words"),
    [
        ({"Idle": "Off"}, "Idle cannot be set while Profile is Balanced"),
        ({"Idle": "On", "Profile": "Fast"}, "Idle becomes Off while Profile is Fast, but On"),
        ({"Idle": "On", "Profile": "Custom"}, ""),
        ({"Depth": 6}, "steps of 4"),
        ({"Depth": "deep"}, "whole number"),
        ({"Depth": 8, "Profile": "Fast", "Boot": "Full"}, "Boot does nothing while Depth is 8 and"),
        ({"Boot": "Slow"}, "allowed: Quick, Full"),
    ],
)  # fmt: skip
def test_the_registry_is_asked_about_what_is_to_be(bios: dict[str, Any], words: str) -> None:
    problems = plan(bios).problems
    assert (not problems) if not words else (len(problems) == 1 and words in problems[0])


def test_what_the_bios_does_by_itself_is_not_written() -> None:
    found = plan({"Idle": "Off", "Profile": "Fast"})
    assert not found.problems and found.to_stage == {"Profile": "Fast"}
    freed = plan({"Idle": "Off", "Profile": "Custom"})
    assert freed.to_stage == {"Profile": "Custom", "Idle": "Off"}
    otherwise = plan({"Idle": "On", "Profile": "Fast"}, now={**NOW, "Idle": "Off"})
    assert "Idle becomes Off while Profile is Fast" in otherwise.problems[0]


def test_pending_values_are_understood() -> None:
    full = {"Profile": "Custom", "Idle": "On", "Depth": "4", "Boot": None, "Unknown": 1}
    assert pending_of(NOW, full) == {"Profile": "Custom"}
    waiting = plan({"Profile": "Custom"}, {"Profile": "Custom", "Depth": 8})
    assert waiting.waiting == ["Profile"] and not waiting.to_stage and waiting.foreign == {"Depth": 8}
    # Right now, but something else would come with the next reset: it is set again.
    assert plan({"Depth": 4}, {"Depth": 8}).to_stage == {"Depth": 4}


def test_without_a_registry_values_keep_the_type_that_they_have() -> None:
    now = {"A": True, "B": "1", "C": 3}
    wants = made({"bios": {"A": "false", "B": 2, "C": "5"}}, None, tuple(now)).wants
    assert make_plan(wants, now, {}, None).to_stage == {"A": False, "B": "2", "C": 5}


@pytest.mark.parametrize(
    ("intent", "host", "words"),
    [
        ({"numa_nodes_per_socket": 4}, {"numa_nodes": 2}, "sockets of 4 NUMA nodes make no 2"),
        ({"memory_interleave": "node"}, {"numa_nodes": 2}, "leaves one NUMA node"),
        ({"iommu": "disabled"}, {"iommu": "pt"}, "iommu pt"),
        ({"acs": "enabled"}, {"acs": "off"}, "ACS off"),
        ({"aspm": "disabled"}, {"aspm": "powersave"}, "policy powersave"),
        ({"numa_nodes_per_socket": 2, "iommu": "enabled", "aspm": "disabled"}, {"numa_nodes": 4}, ""),
    ],
)
def test_intents_that_the_hosts_part_contradicts(
    intent: dict[str, Any], host: dict[str, Any], words: str
) -> None:
    whole = {"gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0}, "fabric": {"kind": "none"}}
    wanted = {**whole, "host": host, "bmc": {"bios_intent": intent}}
    if words:
        with pytest.raises(ValueError, match=words):
            NodeProfile.model_validate(wanted)
    else:
        NodeProfile.model_validate(wanted)
