"""Fail closed: each value that a check reads is refused or garbled in turn; its subject must not pass."""

import math
import re
from functools import cache
from typing import Any

import pytest
from check_cases import run_check, run_twice
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import Check, load_all
from agent.model import Verdict

CHECKS = load_all()
REFUSED = [
    {"error": name}
    for name in ("NOT_SUPPORTED", "TIMEOUT", "UNKNOWN", "NO_PERMISSION", "GPU_IS_LOST", "FUNCTION_NOT_FOUND")
]
BAD_NVML: list[Any] = [
    *REFUSED,
    "garbage",
    "",
    None,
    math.nan,
    math.inf,
    [],
    {},
    [None] * 18,
    ["x"] * 18,
    [-1] * 18,
    10**30,
]
NO_MIG = [{"error": "NOT_SUPPORTED"}, {"error": "FUNCTION_NOT_FOUND"}]
BAD_FILE: list[Any] = [None, "", "garbage", "N/A (no PMA)", "-1", "4", {"error": "NO_PERMISSION"}]
BAD_LINK: list[Any] = [None, "", "garbage", "../../../0000:zz:00.0", {"error": "NO_PERMISSION"}]
BAD_PART: list[Any] = [*REFUSED, {"error": "ABSENT"}]
BAD_COUNT: list[Any] = ["x", "", -1, None, True, math.nan, 1.5]
#: A counter that not every firmware has may be missing; the summary then says so. A thread may have ended.
MAY_BE_ABSENT = re.compile(
    r"hw_counters/roce_(?:slow_restart|adp_retrans)$|/tc/1/traffic_class$|/default_roce_tos$"
    r"|^nic\.kmsg links:|/task/\d+/stat$|^engine\.memory files:proc/\d+/status$"
)

#: Of these files the value is sound: nothing is forced, and a TOS that only warns.
SOUND = [("", "traffic_class"), ("4", "default_roce_tos")]


@cache
def _reads_of(id_: str) -> tuple[str, ...]:
    """What a check reads of a healthy node, sorted."""
    check = CHECKS[id_]
    node = h200_node()
    run_twice(check, node, h200_profile())
    return tuple(sorted(node.reads))


def _subject(check: Check, path: str) -> str | None:
    """The subject that a path of slot 3 belongs to, None for any other slot."""
    if check.id.startswith("engine."):
        its = path.startswith("nvml.gpus.3.") or "/5003/" in path or "/0000:5d:00.0/" in path
        return "engine:glm" if its else None  # the engine that has slot 3
    if path.startswith("nvml.gpus.3.") or (check.id == "gpu.topology" and "mlx5_3/" in path):
        return "gpu3"
    return "mlx5_3/1" if "mlx5_3/" in path or "eth3" in path else None


def _findings_after(check: Check, node: FakeNode, path: str, value: Any) -> dict:
    """Healthy once where a baseline is needed, then with the bad value."""
    if check.needs_interval_s:
        run_check(check, node, h200_profile())
        node.clock.now_s += check.needs_interval_s
    node.set(path, value)
    return run_check(check, node, h200_profile())


def _hurt(check: Check, path: str, value: Any) -> None:
    subject = _subject(check, path)
    assert subject is not None
    findings = _findings_after(check, h200_node(), path, value)
    told = f"{check.id} with {path} = {value!r}: {findings[subject]}"
    assert findings[subject].verdict in (Verdict.UNKNOWN, Verdict.FAIL), told
    others = {finding.verdict for name, finding in findings.items() if name != subject}
    assert others <= {Verdict.PASS, Verdict.SKIP}, f"{check.id} with {path} = {value!r} touched others"


#: Read only for dashboards: without it the metric is missing, and the verdict rests on the rest.
#: (gpu.thermal_margin judges the temperature too, but rests on the margin as long as that is credible.)
FOR_DASHBOARDS = {
    ("gpu.power_limit", "power.draw_w"),
    ("gpu.power_limit", "power.gpu_utilization_percent"),
    ("gpu.power_limit", "power.sm_clock_mhz"),
    ("gpu.thermal_margin", "thermal.memory_temperature_c"),
    ("gpu.thermal_margin", "thermal.temperature_c"),
}
#: Read to catch contradictions only: a platform may lack it.
CROSS_CHECKS = {
    ("gpu.thermal_margin", "thermal.slowdown_c"),
    # The check has a limit of its own for parts that state none.
    ("gpu.hbm_temp", "thermal.memory_max_c"),
    # Newer parts have no application clocks.
    ("gpu.clocks", "ecc.app_sm_clock_mhz"),
    # Evidence that the summary adds.
    ("gpu.power_dips", "power.draw_w"),
}
#: Judged by nvlink.errors on this generation; test_nvlink_generations.py does the same on the other one.
OF_ANOTHER_GENERATION = {"nvlink.ber"}
NEED_NOT_ANSWER = FOR_DASHBOARDS | CROSS_CHECKS
NVML_READS = [
    (c, path)
    for c in CHECKS.values()
    for path in _reads_of(c.id)
    if path.startswith("nvml.gpus.3.")
    and c.id not in OF_ANOTHER_GENERATION
    and (c.id, path.removeprefix("nvml.gpus.3.")) not in NEED_NOT_ANSWER
]
FILE_READS = [
    (c, path)
    for c in CHECKS.values()
    for path in _reads_of(c.id)
    if path.startswith(("files:", "links:")) and _subject(c, path)
]
NET_READS = [(c, path) for c in CHECKS.values() for path in _reads_of(c.id) if path.startswith("net.eth3.")]


def _ids(pair: Any) -> str:
    return pair.id if isinstance(pair, Check) else str(pair)


def test_the_reads_are_what_the_checks_are_about() -> None:
    assert {c.id for c, _ in NVML_READS} >= {
        "gpu.lost", "gpu.thermal_margin", "gpu.throttle", "gpu.power_limit", "gpu.persistence", "gpu.ecc",
        "gpu.remap", "nvlink.links", "nvlink.errors", "nvlink.fabric",
    }  # fmt: skip
    assert {c.id for c, _ in FILE_READS} >= {"nic.present", "nic.port", "roce.ecn_config", "roce.errors"}
    assert {c.id for c, _ in FILE_READS} >= {"host.iommu", "pci.acs", "pci.aspm"}
    assert {c.id for c, _ in NET_READS} >= {"nic.port", "roce.pfc_config", "roce.lossless_drop"}


@pytest.mark.parametrize(("check", "path"), NVML_READS, ids=_ids)
def test_no_refused_nvml_value_passes(check: Check, path: str) -> None:
    for value in BAD_NVML:
        if value == [] and path.endswith(".processes.pids"):
            continue  # no process at all is an answer
        if path.endswith(".mig_enabled") and value in NO_MIG:
            continue  # a GPU that knows no MIG is not cut by it
        _hurt(check, path, value)


@pytest.mark.parametrize(("id_", "field"), sorted(FOR_DASHBOARDS))
def test_a_refused_measure_is_left_out_and_no_other(id_: str, field: str) -> None:
    everything = _findings_after(CHECKS[id_], h200_node(), "nvml.gpus.0.power.draw_w", 70.0)["gpu3"].measures
    for value in BAD_NVML[:-2]:
        found = _findings_after(CHECKS[id_], h200_node(), f"nvml.gpus.3.{field}", value)["gpu3"]
        assert found.verdict is Verdict.PASS
        assert set(found.measures) < set(everything)
        assert len(found.measures) == len(everything) - 1


@pytest.mark.parametrize(("check", "path"), FILE_READS, ids=_ids)
def test_no_bad_file_passes(check: Check, path: str) -> None:
    for value in BAD_LINK if path.startswith("links:") else BAD_FILE:
        if value is None and MAY_BE_ABSENT.search(f"{check.id} {path}"):
            continue
        # "4" is a sound counter that has gone back, or one that has not moved.
        if value == "4" and "counters/" in path:
            continue
        if (value, path.rsplit("/", 1)[-1]) in SOUND:
            continue
        _hurt(check, path, value)


@pytest.mark.parametrize(("check", "path"), NET_READS, ids=_ids)
def test_no_refused_interface_part_passes(check: Check, path: str) -> None:
    for value in BAD_PART:
        # A module that the driver cannot read is not reported, which the summary says.
        if check.id != "nic.cable" or value["error"] not in ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND"):
            _hurt(check, path, value)


@pytest.mark.parametrize("value", BAD_COUNT, ids=repr)
def test_no_garbled_statistic_passes(value: Any) -> None:
    _hurt(CHECKS["roce.lossless_drop"], "net.eth3.ethtool.rx_prio3_discards", value)


GPU_CHECKS = [c for c in CHECKS.values() if c.id.startswith(("gpu.", "nvlink.")) and c.id != "gpu.count"]


@pytest.mark.parametrize("check", GPU_CHECKS, ids=_ids)
@pytest.mark.parametrize("name", ["GPU_IS_LOST", "TIMEOUT", "UNKNOWN", "RESET_REQUIRED", ""])
def test_no_gpu_passes_whose_identity_is_refused(check: Check, name: str) -> None:
    _hurt(check, "nvml.gpus.3.identity.error", name)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=_ids)
@pytest.mark.parametrize("uuid", [None, "", "GPU-garbage"])
def test_no_gpu_passes_without_its_uuid(check: Check, uuid: str | None) -> None:
    _hurt(check, "nvml.gpus.3.identity.uuid", uuid)


@pytest.mark.parametrize("field", ["serial", "pci_bus_id"])
@pytest.mark.parametrize("value", [None, "", "garbage"])
def test_no_pin_passes_on_half_an_identity(field: str, value: str | None) -> None:
    _hurt(CHECKS["gpu.pins"], f"nvml.gpus.3.identity.{field}", value)


@pytest.mark.parametrize("value", [None, "", "garbage"])
def test_no_model_passes_without_its_name(value: str | None) -> None:
    _hurt(CHECKS["gpu.model"], "nvml.gpus.3.identity.name", value)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=_ids)
def test_two_gpus_with_one_uuid_do_not_pass(check: Check) -> None:
    node = h200_node()
    twin = node.data["nvml"]["gpus"][2]["identity"]["uuid"]
    findings = _findings_after(check, node, "nvml.gpus.3.identity.uuid", twin)
    assert findings["gpu2"].verdict in (Verdict.UNKNOWN, Verdict.FAIL)
    assert findings["gpu3"].verdict in (Verdict.UNKNOWN, Verdict.FAIL)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=_ids)
def test_two_slots_pinned_to_one_gpu_do_not_pass(check: Check) -> None:
    node = h200_node()
    twin = node.data["nvml"]["gpus"][2]["identity"]["uuid"]
    # Built without validation: the schema may refuse this itself, and the check must not rely on that.
    profile = h200_profile()
    pins = profile.gpus.pins | {3: profile.gpus.pins[3].model_copy(update={"uuid": twin})}
    doubled = profile.model_copy(update={"gpus": profile.gpus.model_copy(update={"pins": pins})})
    findings = run_check(check, node, doubled)
    assert findings["gpu3"].verdict in (Verdict.UNKNOWN, Verdict.FAIL)


@pytest.mark.parametrize("check", GPU_CHECKS, ids=_ids)
def test_old_readings_do_not_pass(check: Check) -> None:
    if check.id in ("gpu.pins", "gpu.model", "gpu.vbios", "gpu.topology"):
        return  # these judge identities and sysfs, which carry no time
    node = h200_node()
    node.nvml.stale_s = 60.0
    findings = run_twice(check, node, h200_profile())
    assert {finding.verdict for finding in findings.values()} == {Verdict.UNKNOWN}
