"""Every value through the real nvidia-ml-py on the SIMULATED library."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nvml_expected import H200_VALUES, h200_peers
from nvml_lib import NvmlFile, build_library, pci_of, uuid_of

from agent.errors import DeviceAbsent, NotSupported, SourceUnavailable
from agent.sources.gpu_reading import GROUP_FIELDS, NvmlGroup, NvmlRefusal
from agent.sources.nvml import NvmlProcess, boottime_s

Start = Callable[..., NvmlProcess]


def test_system(nvml: NvmlProcess) -> None:
    system = nvml.system()
    assert system.driver_version == "580.159.04"
    assert system.nvml_version == "13.580.159.04"
    assert system.cuda_version == 13000
    assert system.device_count == 8


def test_inventory_says_who_the_eight_gpus_are(nvml: NvmlProcess) -> None:
    gpus = nvml.inventory()
    assert [gpu.uuid for gpu in gpus] == [uuid_of(number) for number in range(8)]
    assert [gpu.pci_bus_id for gpu in gpus] == [pci_of(number) for number in range(8)]
    assert [gpu.minor for gpu in gpus] == list(range(8))
    assert {gpu.name for gpu in gpus} == {"NVIDIA H200"}
    assert {gpu.vbios for gpu in gpus} == {"96.00.A5.00.1A"}
    assert len({gpu.serial for gpu in gpus}) == 8
    assert {gpu.error for gpu in gpus} == {None}


def test_inventory_is_in_pci_bus_order(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu0.pci_bus_id": "00010000:01:00.0", "gpu7.pci_bus_id": "0000000F:01:00.0"})
    gpus = nvml.inventory()
    assert [gpu.index for gpu in gpus] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert [gpu.pci_bus_id for gpu in gpus][-2:] == ["000f:01:00.0", "10000:01:00.0"]


def test_a_board_without_serial_number_has_none(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.remove("gpu4.serial")
    assert nvml.inventory()[4].serial is None
    assert nvml.inventory()[4].error is None


@pytest.mark.parametrize("group", list(NvmlGroup))
def test_every_value_of_every_group_on_every_gpu(nvml: NvmlProcess, group: NvmlGroup) -> None:
    before_s = boottime_s()
    for number in range(8):
        reading = nvml.read(uuid_of(number), group)
        assert dict(reading.values) == (H200_VALUES.get(group) or h200_peers(number))
        assert set(reading.values) == set(GROUP_FIELDS[group])
        assert reading.uuid == uuid_of(number)
        assert before_s <= reading.mono_s <= boottime_s()


def test_values_are_read_anew_each_time(nvml: NvmlProcess, node: NvmlFile) -> None:
    assert nvml.read(uuid_of(3), NvmlGroup.THERMAL).integer("margin_c") == 50
    node.set({"gpu3.margin": -4, "gpu3.power_mw": 690500, "gpu3.remap_pending": 1})
    assert nvml.read(uuid_of(3), NvmlGroup.THERMAL).integer("margin_c") == -4
    assert nvml.read(uuid_of(2), NvmlGroup.THERMAL).integer("margin_c") == 50
    assert nvml.read(uuid_of(3), NvmlGroup.POWER).number("draw_w") == 690.5
    assert nvml.read(uuid_of(3), NvmlGroup.MEMORY).boolean("remap_pending") is True


def test_ecc_kinds_are_not_mixed_up(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set(
        {
            "gpu.ecc.1.0": 1,
            "gpu.ecc.0.0": 2,
            "gpu.ecc.1.1": 3,
            "gpu.remap_corrected": 4,
            "gpu.remap_failure": 1,
        }
    )
    memory = nvml.read(uuid_of(0), NvmlGroup.MEMORY)
    assert memory.integer("ecc_uncorrected_volatile") == 1
    assert memory.integer("ecc_corrected_volatile") == 2
    assert memory.integer("ecc_uncorrected_aggregate") == 3
    assert memory.integer("remap_corrected") == 4
    assert memory.boolean("remap_failure") is True
    assert memory.boolean("remap_pending") is False


def test_counters_beyond_32_bits(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu.field.163": 2**40 + 1})
    assert nvml.read(uuid_of(0), NvmlGroup.NVLINK_ERRORS).integers("crc_errors") == [2**40 + 1] * 18


def test_refused_values_carry_nvmls_reason(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.remove("gpu.margin", "gpu.field.82", "gpu.memory_total", "gpu.remap_corrected")
    node.set(
        {"gpu.threshold.3": "NO_PERMISSION", "gpu.field.194": "UNKNOWN", "gpu.min_limit_mw": "NOT_SUPPORTED"}
    )
    thermal = nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    assert thermal.values["margin_c"] == NvmlRefusal("NOT_SUPPORTED")
    assert not thermal.supported("memory_temperature_c")
    with pytest.raises(NotSupported, match=r"thermal\.margin_c"):
        thermal.integer("margin_c")
    with pytest.raises(SourceUnavailable, match="NO_PERMISSION"):
        thermal.integer("gpu_max_c")
    assert thermal.values["slowdown_offset_c"] == NvmlRefusal("UNKNOWN")
    assert thermal.integer("temperature_c") == 38
    memory = nvml.read(uuid_of(0), NvmlGroup.MEMORY)
    refused = {field for field, value in memory.values.items() if isinstance(value, NvmlRefusal)}
    assert refused == {
        "used_b", "total_b", "remap_corrected", "remap_uncorrected", "remap_pending", "remap_failure",
    }  # fmt: skip
    power = nvml.read(uuid_of(0), NvmlGroup.POWER)
    assert power.values["min_limit_w"] == power.values["max_limit_w"] == NvmlRefusal("NOT_SUPPORTED")


def test_a_one_gpu_partition_has_no_nvlink(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu.links": 0, "gpu.field.91": "NOT_SUPPORTED", "gpu.fabric_state": "NOT_SUPPORTED"})
    nvlink = nvml.read(uuid_of(0), NvmlGroup.NVLINK)
    assert set(nvlink.values.values()) == {NvmlRefusal("NOT_SUPPORTED")}
    fabric = nvml.read(uuid_of(0), NvmlGroup.FABRIC)
    assert set(fabric.values.values()) == {NvmlRefusal("NOT_SUPPORTED")}


@pytest.mark.parametrize("told", [12, "NOT_SUPPORTED"], ids=["link count told", "link count refused"])
def test_a_sku_with_fewer_links(nvml: NvmlProcess, node: NvmlFile, told: object) -> None:
    node.set({"gpu.links": 12, "gpu.field.91": told})
    nvlink = nvml.read(uuid_of(0), NvmlGroup.NVLINK)
    assert nvlink.booleans("states") == [True] * 12
    assert nvlink.integers("speeds_mb_s") == [26562] * 12


def test_a_gpu_with_more_links_than_today(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu.links": 36, "gpu.field.91": 36})
    assert len(nvml.read(uuid_of(0), NvmlGroup.NVLINK).booleans("states")) == 36


def test_a_link_that_is_down_is_not_dropped(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu5.field.165.7": 0, "gpu5.field.164.7": "NOT_SUPPORTED", "gpu5.field.165.9": 2,
              "gpu5.field.165.11": 3})  # fmt: skip
    nvlink = nvml.read(uuid_of(5), NvmlGroup.NVLINK)
    down = [link for link, up in enumerate(nvlink.booleans("states")) if not up]
    assert down == [7, 11], "inactive, and active with its traffic disabled; asleep is up"
    assert nvlink.integers("speeds_mb_s")[7] == 0
    assert len(nvlink.integers("speeds_mb_s")) == 18


def test_a_hole_in_the_counters_refuses_them_all(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu5.field.161.7": "UNKNOWN", "gpu5.field.163": "NOT_SUPPORTED"})
    nvlink = nvml.read(uuid_of(5), NvmlGroup.NVLINK_ERRORS)
    assert nvlink.values["replay_errors"] == NvmlRefusal("UNKNOWN")
    assert nvlink.values["crc_errors"] == NvmlRefusal("NOT_SUPPORTED")
    assert nvlink.integers("recovery_errors") == [0] * 18
    assert nvml.read(uuid_of(5), NvmlGroup.NVLINK).booleans("states") == [True] * 18


def test_links_that_are_not_wired_take_no_counters_from_the_others(nvml: NvmlProcess, node: NvmlFile) -> None:
    """A B300 lists 36 links of which 18 are up; what the others refuse says nothing of those."""
    spare = {f"gpu.field.165.{link}": 0 for link in range(18, 36)}
    refusals = {
        f"gpu.field.{field}.{link}": "NOT_SUPPORTED" for field in (161, 162) for link in range(18, 36)
    }
    node.set({"gpu.links": 36, "gpu.field.91": 36, **spare, **refusals, "gpu.field.162": "NOT_SUPPORTED"})
    counters = nvml.read(uuid_of(0), NvmlGroup.NVLINK_ERRORS)
    assert counters.integers("replay_errors") == [0] * 36
    assert counters.values["recovery_errors"] == NvmlRefusal("NOT_SUPPORTED"), "no link has this one"


def test_a_link_whose_state_fails_makes_the_states_unknown(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu5.field.165.7": "UNKNOWN"})
    nvlink = nvml.read(uuid_of(5), NvmlGroup.NVLINK)
    assert nvlink.values["states"] == NvmlRefusal("UNKNOWN")


def test_a_bulk_call_that_fails_as_a_whole(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.fault("UNKNOWN", gpu=2, call="nvmlDeviceGetFieldValues")
    nvlink = nvml.read(uuid_of(2), NvmlGroup.NVLINK)
    assert set(nvlink.values.values()) == {NvmlRefusal("UNKNOWN")}
    thermal = nvml.read(uuid_of(2), NvmlGroup.THERMAL)
    assert thermal.values["slowdown_offset_c"] == NvmlRefusal("UNKNOWN")
    assert thermal.integer("margin_c") == 50


def test_fabric_in_progress_and_unhealthy(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu1.fabric_state": 2, "gpu1.fabric_health_mask": 0x21, "gpu1.fabric_clique_id": 7,
              "gpu1.fabric_status": 999})  # fmt: skip
    fabric = nvml.read(uuid_of(1), NvmlGroup.FABRIC)
    assert dict(fabric.values) == {"state": 2, "status": 999, "health_mask": 0x21, "clique_id": 7}


def test_processes(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.set({"gpu0.processes": "4242:1073741824 4243:524288", "gpu1.processes": "4242:na"})
    found = nvml.read(uuid_of(0), NvmlGroup.PROCESSES)
    assert found.integers("pids") == [4242, 4243]
    assert found.numbers("used_mib") == [1024.0, 0.5]
    unknown = nvml.read(uuid_of(1), NvmlGroup.PROCESSES)
    assert unknown.integers("pids") == [4242]
    assert not unknown.supported("used_mib")


def test_an_old_driver_without_a_function(node: NvmlFile, start: Start, tmp_path: Path) -> None:
    hidden = ["nvmlDeviceGetMarginTemperature", "nvmlDeviceGetTemperature", "nvmlDeviceGetGpuFabricInfoV"]
    old = build_library(tmp_path / "old", hide=hidden)
    nvml = start(env=node.env(old))
    thermal = nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    assert thermal.values["margin_c"] == NvmlRefusal("FUNCTION_NOT_FOUND")
    assert thermal.integer("temperature_c") == 38, "nvmlDeviceGetTemperatureV stands in"
    with pytest.raises(NotSupported):
        nvml.read(uuid_of(0), NvmlGroup.FABRIC).integer("state")


def test_library_by_path(node: NvmlFile, start: Start, library: Path) -> None:
    nvml = start(library=str(library), env={"NODEGATE_TEST_NVML": str(node.path)})
    assert nvml.system().device_count == 8


def test_output_of_the_library_does_not_garble_replies(nvml: NvmlProcess, node: NvmlFile) -> None:
    node.fault("noise", call="nvmlDeviceGetPowerUsage")
    for number in range(8):
        assert nvml.read(uuid_of(number), NvmlGroup.POWER).number("draw_w") == 77.624


def test_a_gpu_that_is_not_there(nvml: NvmlProcess) -> None:
    with pytest.raises(DeviceAbsent, match=re.escape(uuid_of(9))):
        nvml.read(uuid_of(9), NvmlGroup.THERMAL)


def test_a_node_without_gpus(node: NvmlFile, nvml: NvmlProcess) -> None:
    node.set({"count": 0})
    assert nvml.system().device_count == 0
    assert list(nvml.inventory()) == []


def test_many_threads_get_their_own_gpus_values(
    nvml: NvmlProcess, node: NvmlFile, children: Callable[[], list[int]]
) -> None:
    node.set({f"gpu{number}.temperature": 40 + number for number in range(8)})

    def temperatures(number: int) -> set[int]:
        return {nvml.read(uuid_of(number), NvmlGroup.THERMAL).integer("temperature_c") for _ in range(20)}

    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(temperatures, range(8)))
    assert seen == [{40 + number} for number in range(8)]
    assert len(children()) == 1, "one process serves all threads"
