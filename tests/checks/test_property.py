"""Every check on broken readings: no exception escapes it, and nothing passes whose evidence is missing.

The nodes are healthy ones of which values are dropped, refused, garbled, truncated or made extreme. Sources
give typed readings, so the values of netlink, systemd and engines keep their type; NVML values and Redfish
documents do not.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from check_cases import run_check
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from property_nodes import SLOT, Variant, healthy, spoiled, twice, value_at, variant_for, variants
from property_spoil import spoil

from agent.checks.registry import Check, load_all
from agent.model import Verdict

CHECKS = load_all()
#: A local run may look further than the one that must say the same every time.
FUZZ = settings(
    max_examples=int(os.environ.get("NODEGATE_FUZZ_EXAMPLES", "12")),
    derandomize="NODEGATE_FUZZ_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
#: (check, path, how, reason): a value that may be missing without anything being unknown.
MAY_BE_MISSING: tuple[tuple[str, str, str, str], ...] = (
    ("bmc.bios", r"HGX_Baseboard", "any", "a baseboard that is listed as a system of its own has no BIOS"),
    ("bmc.coolant", r"/LeakDetection$", "dropped", "a unit without leak detectors; its flow is judged"),
    (
        "driver.modules",
        r"nvidia/initstate$",
        "dropped",
        "a module that is built in has a folder and no state",
    ),
    (
        "engine.cpu",
        r"/task/\d+/stat$",
        "dropped",
        "a thread may end between two looks; the others are judged",
    ),
    ("engine.memory", r"proc/\d+/status$", "dropped", "a process may end between two looks"),
    ("gpu.mig", r"mig_enabled$", "refused", "a GPU that knows no MIG is not cut by it"),
    ("gpu.pcie_errors", r"/aer_dev_\w+$", "dropped", "a platform without AER; NVML's counters remain"),
    ("gpu.power_dips", r"power\.draw_w$", "any", "shown with a dip; the counters of time tell the dip"),
    ("gpu.power_limit", r"power\.(draw_w|gpu_utilization_percent|sm_clock_mhz)$", "any", "for dashboards"),
    ("gpu.thermal_margin", r"memory_temperature_c$", "any", "for dashboards"),
    (
        "gpu.thermal_margin",
        r"thermal\.(slowdown_c|temperature_c)$",
        "any",
        "contradiction only: margin decides",
    ),
    ("host.disk_health", r"nvme\d/state$", "dropped", "a controller that is not there is no broken one"),
    ("host.driver", r"nvidia/version$", "dropped", "/proc/driver/nvidia/version says the same"),
    (
        "host.governor",
        r"scaling_governor$",
        "dropped",
        "a CPU that is offline has none; the others are judged",
    ),
    ("host.limits", r"proc/\d+/limits$", "dropped", "a process that has ended; the agent's own limits count"),
    ("host.numa", r"numa_balancing$", "dropped", "a kernel without NUMA balancing has no such file"),
    ("host.sysctl", r"conf/\w+/arp_ignore$", "dropped", "the key has a `*`: the interfaces there are judged"),
    ("(ib|roce).(errors|oos)", r"hw_counters/\w+$", "dropped", "firmware differs; the summary names it"),
    ("nic.cable", r"\.module$", "dropped", "copper and older modules report nothing; the summary says so"),
    ("nic.firmware", r"mlx5_core/version$", "dropped", "the kernel's own driver has no version"),
    ("nic.kmsg", r"/device$", "dropped", "the profile has the card's address"),
    ("nic.pcie", r"^links:sys/bus/pci", "dropped", "without the slot's path the card's own maximum counts"),
    ("nvswitch.present", r"/(vendor|class)$", "dropped", "of another device: the switches are all there"),
    (
        "topology.file",
        r"/max_link_(speed|width)$",
        "dropped",
        "the other end of the link tells; NCCL takes it so",
    ),
    ("pci.aspm", r"/l1_aspm$", "dropped", "a device that cannot save power has no such file"),
    ("roce.pfc_config", r"(traffic_class|default_roce_tos)$", "dropped", "nothing is forced"),
)
#: These look at running engines, of which a node folder has none.
OF_ENGINES = ("engine.", "gpu.memory_growth")
HEALTHY = (Verdict.PASS, Verdict.SKIP)
#: Parts that a real source refuses as a whole and never leaves out; a group has a place for every member.
WHOLE = re.compile(r"nvml\.(gpus|system)|groups\.\w+\.peers\..+")


def _ids(check: Check) -> str:
    return check.id


def allowed(check: Check, path: str, how: str) -> bool:
    """Whether the list says that this value may be missing."""
    return any(
        re.fullmatch(c, check.id) and re.search(p, path) and h in (how, "any")
        for c, p, h, _ in MAY_BE_MISSING
    )


def concerned(variant: Variant, path: str) -> set[str]:
    """The subjects that a path belongs to; none for what is the whole node's."""
    kind, _, rest = path.partition(".")
    if kind == "bmc":
        service = rest.partition(".")[0]
        return {"node"} if service == "node" else {service, f"cdu:{service}"}
    if kind in ("groups", "launches"):
        return {f"engine:{rest.partition('.')[0]}"}
    return variant.subjects_of(path, SLOT)


def problems(check: Check, variant: Variant, path: str, how: str, data: dict[str, Any]) -> list[str]:
    """What is wrong with the findings after one value has gone missing."""
    if allowed(check, path, how):
        return []
    before, _ = healthy(check, variant)
    after = twice(check, variant.node(), data, variant.profile)
    # A subject that is skipped or not judged needs nothing.
    judged = {s for s in before if before[s].verdict is Verdict.PASS}
    wanted = concerned(variant, path) & before.keys() or judged
    passed = sorted(s for s in wanted if s in after and after[s].verdict is Verdict.PASS)
    # A value of the whole node may be needed by some of its subjects only.
    if passed and (wanted != judged or len(passed) == len(wanted)):
        return [f"{check.id}: {path} {how}, yet {passed[0]} passes: {after[passed[0]].summary}"]
    return []


@pytest.mark.parametrize("check", CHECKS.values(), ids=_ids)
def test_nothing_passes_when_what_it_needs_is_missing(check: Check) -> None:
    variant = variant_for(check)
    _before, reads = healthy(check, variant)
    found: list[str] = []
    for path in sorted(reads):
        if variant.of_other_slot(path) or value_at(variant.data, path) is None:
            continue  # the same code, or what was looked for is rightly not there
        if not WHOLE.fullmatch(path):
            found += problems(check, variant, path, "dropped", spoiled(variant.data, path, None, drop=True))
        found += problems(check, variant, path, "refused", spoiled(variant.data, path, {"error": "TIMEOUT"}))
    assert not found, "\n".join(found)


def test_the_list_of_what_may_be_missing_is_not_stale() -> None:
    reads = [(check.id, path) for check in CHECKS.values() for path in healthy(check, variant_for(check))[1]]
    unused = [
        (c, p) for c, p, _how, _reason in MAY_BE_MISSING
        if not any(re.fullmatch(c, id_) and re.search(p, path) for id_, path in reads)
    ]  # fmt: skip
    assert unused == []


#: These compare the profile with itself and read nothing of the node.
OF_THE_PROFILE = ("roce.nccl",)


@pytest.mark.parametrize("check", [c for c in CHECKS.values() if c.id not in OF_THE_PROFILE], ids=_ids)
def test_nothing_passes_when_no_source_answers(check: Check) -> None:
    refused = {"error": "TIMEOUT"}
    variant = variant_for(check)
    data = {
        "nvml": refused,
        "net": {name: dict.fromkeys(parts, refused) for name, parts in variant.data["net"].items()},
        "files": {},  # a folder that cannot be listed, too
        "links": {},
        "kmsg": refused,
        "host": {kind: _all_refused(kind, known) for kind, known in variant.data["host"].items()},
        "bmc": dict.fromkeys(variant.data["bmc"], refused),
        "faults": refused,
        **{
            kind: dict.fromkeys(variant.data.get(kind, ()), refused)
            for kind in ("engines", "groups", "launches")
        },
    }
    passed = [
        f for f in run_check(check, variant.node(data), variant.profile).values() if f.verdict is Verdict.PASS
    ]
    assert passed == []


def _all_refused(kind: str, known: dict[str, Any]) -> Any:
    refused = {"error": "TIMEOUT"}
    return refused if kind == "clock" else dict.fromkeys(known, refused)


@pytest.mark.parametrize("check", CHECKS.values(), ids=_ids)
@FUZZ
@given(
    changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 2**16)), min_size=1, max_size=4),
    from_the_start=st.booleans(),
)
def test_no_exception_escapes(check: Check, changes: list[tuple[int, int]], from_the_start: bool) -> None:
    variant = variant_for(check)
    data = variant.data
    _before, reads = healthy(check, variant)
    engines = [f"engines.{name}" for name in variant.data.get("engines", ())]
    paths = [*sorted(reads), "kmsg", *engines]
    for where, how in changes:
        path = paths[where % len(paths)]
        data = spoil(data, path, how)
        note(f"{path} = {value_at(data, path)!r}"[:300] if path != "kmsg" else data["kmsg"][-1])
    node = variant.node(data) if from_the_start else variant.node()
    for finding in twice(check, node, data, variant.profile).values():
        assert finding.summary.strip() and "\n" not in finding.summary
        assert finding.basis is not None or finding.verdict not in (Verdict.WARN, Verdict.FAIL)


def test_every_node_of_the_property_test_is_healthy() -> None:
    for variant in variants():
        for check in CHECKS.values():
            if check.id.startswith(OF_ENGINES) and not variant.data.get("engines"):
                continue  # a folder holds no engine
            findings = healthy(check, variant)[0].values()
            bad = [f"{check.id} {f.subject}: {f.summary}" for f in findings if f.verdict not in HEALTHY]
            assert bad == [], variant.name
