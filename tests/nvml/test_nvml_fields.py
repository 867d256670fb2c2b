"""Groups beyond the fast ones: their values, each refused alone; on the SIMULATED library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_lib import BLACKWELL_LINKS, NvmlFile, build_library, uuid_of

from agent.errors import DeviceLost, NotSupported, SourceTimeout, SourceUnavailable
from agent.sources.gpu_reading import GROUP_FIELDS, NvmlGroup, NvmlRefusal
from agent.sources.nvml import NvmlProcess
from agent.sources.nvml_child_links import error_rate

Start = Callable[..., NvmlProcess]
UUID = uuid_of(2)

#: What the file calls a value -> (group, field), for every value whose refusal must stay its own.
OF_KEY: dict[str, tuple[NvmlGroup, tuple[str, ...]]] = {
    "gpu.field.74": (NvmlGroup.SLOWDOWNS, ("sw_power_cap_ns",)),
    "gpu.field.269": (NvmlGroup.SLOWDOWNS, ("sw_thermal_ns",)),
    "gpu.field.270": (NvmlGroup.SLOWDOWNS, ("hw_thermal_ns",)),
    "gpu.field.271": (NvmlGroup.SLOWDOWNS, ("hw_brake_ns",)),
    "gpu.ecc.0.0.2": (NvmlGroup.ECC, ("dram_corrected_volatile",)),
    "gpu.ecc.1.0.2": (NvmlGroup.ECC, ("dram_uncorrected_volatile",)),
    "gpu.ecc.0.0.7": (NvmlGroup.ECC, ("sram_corrected_volatile",)),
    "gpu.ecc.1.0.7": (NvmlGroup.ECC, ("sram_uncorrected_volatile",)),
    "gpu.sram.secded": (NvmlGroup.ECC, ("sram_uncorrected_aggregate", "sram_threshold_exceeded")),
    "gpu.histogram.none": (NvmlGroup.ECC, ("remap_banks_none",)),
    "gpu.tpc_repair_pending": (NvmlGroup.ECC, ("channel_repair_pending", "tpc_repair_pending")),
    "gpu.app_clock.1": (NvmlGroup.ECC, ("app_sm_clock_mhz",)),
    "gpu.mig_current": (NvmlGroup.ECC, ("mig_enabled",)),
    "gpu.field.169": (NvmlGroup.PCIE_ERRORS, ("l0_to_recovery",)),
    "gpu.field.173": (NvmlGroup.PCIE_ERRORS, ("correctable",)),
    "gpu.field.174": (NvmlGroup.PCIE_ERRORS, ("naks_received",)),
    "gpu.field.175": (NvmlGroup.PCIE_ERRORS, ("receiver_errors",)),
    "gpu.field.176": (NvmlGroup.PCIE_ERRORS, ("bad_tlp",)),
    "gpu.field.177": (NvmlGroup.PCIE_ERRORS, ("naks_sent",)),
    "gpu.field.178": (NvmlGroup.PCIE_ERRORS, ("bad_dllp",)),
    "gpu.field.179": (NvmlGroup.PCIE_ERRORS, ("non_fatal",)),
    "gpu.field.180": (NvmlGroup.PCIE_ERRORS, ("fatal",)),
    "gpu.field.206": (NvmlGroup.NVLINK_BER, ("malformed_packets",)),
    "gpu.field.207": (NvmlGroup.NVLINK_BER, ("buffer_overruns",)),
    "gpu.field.208": (NvmlGroup.NVLINK_BER, ("receive_errors",)),
    "gpu.field.209": (NvmlGroup.NVLINK_BER, ("remote_errors",)),
    "gpu.field.210": (NvmlGroup.NVLINK_BER, ("general_errors",)),
    "gpu.field.211": (NvmlGroup.NVLINK_BER, ("integrity_errors",)),
    "gpu.field.212": (NvmlGroup.NVLINK_BER, ("transmit_discards",)),
    "gpu.field.213": (NvmlGroup.NVLINK_BER, ("recoveries",)),
    "gpu.field.214": (NvmlGroup.NVLINK_BER, ("failed_recoveries",)),
    "gpu.field.219": (NvmlGroup.NVLINK_BER, ("effective_errors",)),
    "gpu.field.220": (NvmlGroup.NVLINK_BER, ("effective_ber",)),
    "gpu.field.221": (NvmlGroup.NVLINK_BER, ("symbol_errors",)),
    "gpu.field.222": (NvmlGroup.NVLINK_BER, ("symbol_ber",)),
    "gpu.p2p.0": (NvmlGroup.PEERS, ("p2p_read",)),
    "gpu.p2p.2": (NvmlGroup.PEERS, ("p2p_nvlink",)),
}
#: The calls of one GPU that these groups add; all are made by the group `ecc`.
NEW_CALLS = (
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetApplicationsClock",
)


def refused(nvml: NvmlProcess, group: NvmlGroup) -> set[str]:
    values = nvml.read(UUID, group).values
    return {field for field, value in values.items() if isinstance(value, NvmlRefusal)}


def test_each_refusal_is_its_values_own(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set(BLACKWELL_LINKS)
    for key, (group, fields) in OF_KEY.items():
        before = node.values[key]
        assert refused(nvml, group) == set(), f"before {key}"
        node.remove(key)
        assert refused(nvml, group) == set(fields), key
        with pytest.raises(NotSupported, match=fields[0]):
            nvml.read(UUID, group).number(fields[0])
        node.set({key: before})


def test_each_value_is_its_own(nvml: NvmlProcess, node: NvmlFile) -> None:
    """A different number in each place: none is read from another's."""
    single = [key for key, (_, fields) in OF_KEY.items() if len(fields) == 1 and ".p2p." not in key]
    numbers = {key: 1000 + place for place, key in enumerate(single)}
    node.set(BLACKWELL_LINKS | numbers)
    for key, number in numbers.items():
        group, (field,) = OF_KEY[key]
        value = nvml.read(UUID, group).values[field]
        if group is NvmlGroup.NVLINK_BER:
            assert value == [error_rate(number) if field.endswith("_ber") else number] * 18, key
        else:
            assert value == (bool(number) if isinstance(value, bool) else number), key


def test_counters_of_64_bits(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set(BLACKWELL_LINKS | {"gpu.field.271": 2**40 + 1, "gpu.field.208": 2**41, "gpu.ecc.0.0.2": 2**42})
    assert nvml.read(UUID, NvmlGroup.SLOWDOWNS).integer("hw_brake_ns") == 2**40 + 1
    assert nvml.read(UUID, NvmlGroup.NVLINK_BER).integers("receive_errors") == [2**41] * 18
    assert nvml.read(UUID, NvmlGroup.ECC).integer("dram_corrected_volatile") == 2**42


def test_sram_repairs_and_banks(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu.sram.parity": 3, "gpu.sram.secded": 4, "gpu.sram.exceeded": 1, "gpu.histogram.none": 2})
    node.set({"gpu.histogram.low": 9, "gpu.channel_repair_pending": 1})
    ecc = nvml.read(UUID, NvmlGroup.ECC)
    assert ecc.integer("sram_uncorrected_aggregate") == 7
    assert ecc.boolean("sram_threshold_exceeded") is True
    assert ecc.integer("remap_banks_none") == 2
    assert (ecc.boolean("channel_repair_pending"), ecc.boolean("tpc_repair_pending")) == (True, False)


@pytest.mark.parametrize(
    ("packed", "rate"),
    [(0x0FFF, 15e-255), (0x0FEE, 15e-238), (0x010C, 1e-12), (0x0506, 5e-6), (0, 0.0), (0x0F00, 15.0)],
)
def test_packed_bit_error_rates(packed: int, rate: float) -> None:
    """As nvml.h packs them; 15e-255 and 15e-238 are what links without an error read."""
    assert error_rate(packed) == rate


def test_bit_error_rates_by_link(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set(BLACKWELL_LINKS | {"gpu2.field.220.7": 0x0508, "gpu2.field.213.7": 4})
    links = nvml.read(UUID, NvmlGroup.NVLINK_BER)
    assert links.numbers("effective_ber")[7] == 5e-8
    assert links.numbers("effective_ber")[6] == 15e-254
    assert links.integers("recoveries") == [0] * 7 + [4] + [0] * 10
    node.set({"gpu2.field.220.3": "UNKNOWN"})
    assert refused(nvml, NvmlGroup.NVLINK_BER) == {"effective_ber"}, "no list with a hole"


def test_a_partition_without_links_has_no_rates(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set(BLACKWELL_LINKS | {"gpu.links": 0, "gpu.field.91": 0})
    assert refused(nvml, NvmlGroup.NVLINK_BER) == set(GROUP_FIELDS[NvmlGroup.NVLINK_BER])


def test_a_new_call_that_finds_the_gpu_lost(nvml: NvmlProcess, node: NvmlFile) -> None:
    for call in NEW_CALLS:
        node.fault("GPU_IS_LOST", gpu=2, call=call)
        with pytest.raises(DeviceLost):
            nvml.read(UUID, NvmlGroup.ECC)
        node.fault("none", gpu=2, call=call)


@pytest.mark.parametrize(
    ("fault", "error", "rest_s", "calls"),
    [
        ("segv", SourceUnavailable, 1.0, NEW_CALLS),
        # Each hang is waited for, and from outside all look the same: the first call of all, and the last.
        ("hang", SourceTimeout, 10.0, (NEW_CALLS[0], NEW_CALLS[-1])),
    ],
)
def test_a_new_call_that_hangs_or_crashes(
    start: Start,
    node: NvmlFile,
    clock: Callable[[], float],
    fault: str,
    error: type[Exception],
    rest_s: float,
    calls: tuple[str, ...],
) -> None:
    """It costs its GPU the group for long, the rest of this GPU for a moment, and nobody else anything."""
    nvml = start(deadline_s=1.5, mono_s=clock)
    nvml.inventory()
    for call in calls:
        node.fault(fault, gpu=2, call=call)
        with pytest.raises(error, match=f"ecc of {UUID}"):
            nvml.read(UUID, NvmlGroup.ECC)
        assert nvml.read(uuid_of(3), NvmlGroup.ECC).values
        with pytest.raises(error, match="next try"):
            nvml.read(UUID, NvmlGroup.THERMAL)
        clock.now_s += rest_s + 0.1
        assert nvml.read(UUID, NvmlGroup.THERMAL).integer("margin_c") == 50
        node.fault("none", gpu=2, call=call)
        clock.now_s += 300
        assert nvml.read(UUID, NvmlGroup.ECC).integer("remap_banks_none") == 0


def test_old_bindings_and_drivers_lack_functions(node: NvmlFile, start: Start, tmp_path: Path) -> None:
    hidden = ["nvmlDeviceGetApplicationsClock", "nvmlDeviceGetRepairStatus", "nvmlDeviceGetP2PStatus"]
    nvml = start(env=node.env(build_library(tmp_path / "old", hide=hidden)))
    ecc = nvml.read(UUID, NvmlGroup.ECC)
    assert ecc.integer("app_sm_clock_mhz") == 1980, "nvmlDeviceGetClock stands in"
    assert ecc.values["channel_repair_pending"] == NvmlRefusal("FUNCTION_NOT_FOUND")
    peers = nvml.read(UUID, NvmlGroup.PEERS)
    assert peers.values["p2p_nvlink"] == NvmlRefusal("FUNCTION_NOT_FOUND")
    assert peers.integers("topology") == [30, 30, 0, 30, 50, 50, 50, 50]


def test_cheap_fields_and_what_stands_in_for_them(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu.field.192": 500000, "gpu.field.1": 0})
    assert nvml.read(UUID, NvmlGroup.POWER).number("requested_limit_w") == 500.0
    assert nvml.read(UUID, NvmlGroup.MEMORY).boolean("ecc_enabled") is False
    node.remove("gpu.field.192", "gpu.field.1")
    assert nvml.read(UUID, NvmlGroup.POWER).number("requested_limit_w") == 700.0
    assert nvml.read(UUID, NvmlGroup.MEMORY).boolean("ecc_enabled") is True


def test_what_belongs_to_the_board_is_not_asked_each_time_but_its_refusal_is(
    nvml: NvmlProcess, node: NvmlFile
) -> None:
    node.set({"gpu2.max_clock.1": "UNKNOWN", "gpu2.threshold.1": "NOT_SUPPORTED"})
    assert refused(nvml, NvmlGroup.POWER) == {"max_sm_clock_mhz"}
    node.set({"gpu2.max_clock.1": 1980, "gpu2.threshold.1": 89})
    assert refused(nvml, NvmlGroup.POWER) == set()
    node.set({"gpu2.max_clock.1": 1000, "gpu3.max_clock.1": 1500, "gpu2.threshold.1": 70})
    assert nvml.read(UUID, NvmlGroup.POWER).integer("max_sm_clock_mhz") == 1980
    assert nvml.read(uuid_of(3), NvmlGroup.POWER).integer("max_sm_clock_mhz") == 1500
    assert nvml.read(UUID, NvmlGroup.THERMAL).integer("slowdown_c") == 70, "first read now"
