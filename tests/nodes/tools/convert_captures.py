"""Make the node folders h200-x1-capture and h200-x2-capture from the raw dumps beside them (`raw/`).

Run it from anywhere: python tests/nodes/tools/convert_captures.py [TARGET]. Only what the dumps hold is
written; what a node folder needs besides is listed under `filled_in`.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import yaml

NODES = Path(__file__).parents[1]
REFUSED = {"error": "NOT_SUPPORTED"}
FIELD_IDS = {"replay_errors": 161, "recovery_errors": 162, "crc_errors": 163}


def main(target: Path = NODES) -> None:
    one = NODES / "h200-x1-capture" / "raw"
    two = NODES / "h200-x2-capture" / "raw"
    system, gpu = x1(json.loads((one / "nvml.json").read_text()))
    write(target / "h200-x1-capture", one, {"system": system, "gpus": [gpu]}, meta_x1())
    gpus = x2(json.loads((two / "nvml-nvlink.json").read_text()), (two / "nvidia-smi-q-gpu0.txt").read_text())
    write(target / "h200-x2-capture", two, {"system": {**system, "device_count": 2}, "gpus": gpus}, meta_x2())


def x1(dump: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One GPU whose NVML calls were recorded one by one, with their times."""
    device, thresholds = dump["dev"], dump["temp_thresholds"]
    fields = {entry[0]: entry for entry in dump["fields"].values()}

    def value(name: str) -> Any:
        return device[name]["v"]

    def signed(field_id: int) -> int:
        return int(fields[field_id][3]["siVal"])

    def took_us(*names: str) -> float:
        return round(sum(device[name]["us"] for name in names), 1)

    gpu = {
        "identity": {
            "index": 0,
            "uuid": value("UUID"),
            "pci_bus_id": pci_address(value("PciInfo_v3")["busId"]),
            "name": value("Name"),
            "serial": value("Serial"),
            "vbios": value("VbiosVersion"),
            "minor": value("MinorNumber"),
        },
        "thermal": {
            "temperature_c": value("Temperature"),
            "memory_temperature_c": fields[82][3]["uiVal"],
            "margin_c": value("MarginTemperature"),
            "shutdown_c": thresholds["0"],
            "slowdown_c": thresholds["1"],
            "memory_max_c": thresholds["2"],
            "gpu_max_c": thresholds["3"],
            "shutdown_offset_c": signed(193),
            "slowdown_offset_c": signed(194),
            "memory_offset_c": signed(195),
            "gpu_offset_c": signed(196),
        },
        "power": {
            "draw_w": value("PowerUsage") / 1000,
            "enforced_limit_w": value("EnforcedPowerLimit") / 1000,
            "requested_limit_w": value("PowerManagementLimit") / 1000,
            "default_limit_w": value("PowerManagementDefaultLimit") / 1000,
            "min_limit_w": value("PowerManagementLimitConstraints")[0] / 1000,
            "max_limit_w": value("PowerManagementLimitConstraints")[1] / 1000,
            "persistence": bool(value("PersistenceMode")),
            "event_reasons": value("CurrentClocksEventReasons"),
            "sm_clock_mhz": value("ClockInfo"),
            "max_sm_clock_mhz": value("MaxClockInfo"),
            "gpu_utilization_percent": value("UtilizationRates")["gpu"],
        },
        "memory": {
            "used_b": value("MemoryInfo")["used"],
            "total_b": value("MemoryInfo")["total"],
            "ecc_enabled": bool(value("EccMode")[0]),
            "ecc_corrected_volatile": fields[3][3]["uiVal"],
            "ecc_uncorrected_volatile": fields[4][3]["uiVal"],
            "ecc_uncorrected_aggregate": fields[6][3]["uiVal"],
            "remap_corrected": value("RemappedRows")[0],
            "remap_uncorrected": value("RemappedRows")[1],
            "remap_pending": bool(value("RemappedRows")[2]),
            "remap_failure": bool(value("RemappedRows")[3]),
            "recovery_action": fields[230][3]["uiVal"],
        },
        "nvlink": {name: dict(REFUSED) for name in ("states", "speeds_mb_s")},
        "nvlink_errors": {name: dict(REFUSED) for name in FIELD_IDS},
        "pcie": {
            "generation": value("CurrPcieLinkGeneration"),
            "max_generation": value("MaxPcieLinkGeneration"),
            "width": value("CurrPcieLinkWidth"),
            "max_width": value("MaxPcieLinkWidth"),
            "replays": value("PcieReplayCounter"),
        },
        "processes": {"pids": value("ComputeRunningProcesses"), "used_mib": []},
        "call_us": {
            "thermal": took_us("Temperature", "MarginTemperature"),
            "power": took_us(
                "PowerUsage", "EnforcedPowerLimit", "PowerManagementLimit", "CurrentClocksEventReasons"
            ),
            "memory": took_us("MemoryInfo", "EccMode", "TotalEccErrors", "RemappedRows"),
            "pcie": took_us("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "PcieReplayCounter"),
            "processes": took_us("ComputeRunningProcesses"),
        },
    }
    calls = dump["sys"]
    system = {
        "driver_version": calls["nvmlSystemGetDriverVersion"][0],
        "nvml_version": calls["nvmlSystemGetNVMLVersion"][0],
        "cuda_version": calls["nvmlSystemGetCudaDriverVersion_v2"][0],
        "device_count": dump["count"],
    }
    return system, gpu


def x2(dump: dict[str, Any], smi: str) -> list[dict[str, Any]]:
    """Two GPUs: NVLink and fabric of both through NVML, the rest of the first as nvidia-smi -q showed it."""
    gpus = []
    for i, recorded in enumerate(dump["gpus"]):
        fabric = recorded["c_nvmlGpuFabricInfo_v2_t"]
        by_id = {entry[0]: entry[1:] for entry in recorded["fields"].values()}
        links = len(recorded["links"])
        # Of each counter two links were recorded this way; the legacy calls (err0 to err2) have all.
        counters = {}
        for name, field_id in FIELD_IDS.items():
            assert {pair[1] for pair in by_id[field_id]} == {0}, "then every link needs its own value"
            counters[name] = [0] * links
        assert all(link["err0"] == link["err1"] == link["err2"] == 0 for link in recorded["links"])
        gpus.append(
            {
                "identity": {"index": i, "uuid": recorded["uuid"], "pci_bus_id": f"0000:00:0{6 + i}.0"},
                "nvlink": {
                    "states": [link["State"] == 1 for link in recorded["links"]],
                    "speeds_mb_s": dump["speed"],
                },
                "nvlink_errors": counters,
                "fabric": {
                    "state": int(fabric["state"]),
                    "status": int(fabric["status"]),
                    "health_mask": int(fabric["healthMask"]),
                    "clique_id": int(fabric["cliqueId"]),
                },
            }
        )
    assert gpus[0]["identity"]["uuid"] == shown(smi, "GPU UUID")
    gpus[0]["identity"] |= {
        "name": shown(smi, "Product Name"),
        "serial": shown(smi, "Serial Number"),
        "vbios": shown(smi, "VBIOS Version"),
        "minor": int(shown(smi, "Minor Number")),
    }
    gpus[0] |= smi_groups(smi)
    return gpus


def smi_groups(smi: str) -> dict[str, Any]:
    """What nvidia-smi -q shows of one idle GPU."""
    return {
        "thermal": {
            "temperature_c": number(smi, "GPU Current Temp"),
            "memory_temperature_c": number(smi, "Memory Current Temp"),
            "margin_c": number(smi, "GPU T.Limit Temp"),
            "shutdown_offset_c": number(smi, "GPU Shutdown T.Limit Temp"),
            "slowdown_offset_c": number(smi, "GPU Slowdown T.Limit Temp"),
            "memory_offset_c": number(smi, "Memory Max Operating T.Limit Temp"),
            "gpu_offset_c": number(smi, "GPU Max Operating T.Limit Temp"),
        },
        "power": {
            "draw_w": float(shown(smi, "Instantaneous Power Draw").split()[0]),
            "enforced_limit_w": float(number(smi, "Current Power Limit")),
            "requested_limit_w": float(number(smi, "Requested Power Limit")),
            "default_limit_w": float(number(smi, "Default Power Limit")),
            "min_limit_w": float(number(smi, "Min Power Limit")),
            "max_limit_w": float(number(smi, "Max Power Limit")),
            "persistence": shown(smi, "Persistence Mode") == "Enabled",
            "event_reasons": 1 if shown(smi, "Idle") == "Active" else 0,
            "sm_clock_mhz": number(smi, "SM"),
            "gpu_utilization_percent": number(smi.split("Utilization", 1)[1], "GPU"),
        },
        "memory": {
            "used_b": number(smi, "Used") << 20,
            "total_b": number(smi, "Total") << 20,
            "ecc_enabled": shown(smi.split("ECC Mode", 1)[1], "Current") == "Enabled",
            "ecc_corrected_volatile": number(smi, "SRAM Correctable") + number(smi, "DRAM Correctable"),
            "ecc_uncorrected_volatile": number(smi, "SRAM Uncorrectable Parity")
            + number(smi, "SRAM Uncorrectable SEC-DED")
            + number(smi, "DRAM Uncorrectable"),
            "remap_corrected": number(smi, "Correctable Error"),
            "remap_uncorrected": number(smi, "Uncorrectable Error"),
            "remap_pending": shown(smi.split("Remapped Rows", 1)[1], "Pending") == "Yes",
            "remap_failure": shown(smi, "Remapping Failure Occurred") == "Yes",
        },
        "pcie": {
            "generation": number(smi.split("PCIe Generation", 1)[1], "Current"),
            "max_generation": number(smi.split("PCIe Generation", 1)[1], "Max"),
            "width": int(shown(smi.split("Link Width", 1)[1], "Current").rstrip("x")),
            "max_width": int(shown(smi.split("Link Width", 1)[1], "Max").rstrip("x")),
            "replays": number(smi, "Replays Since Reset"),
        },
        "processes": {"pids": [], "used_mib": []},
    }


def shown(smi: str, label: str) -> str:
    """The first value of a label."""
    match = re.search(rf"^\s*{re.escape(label)}\s*:\s*(.+?)\s*$", smi, re.MULTILINE)
    assert match, label
    return match.group(1)


def number(smi: str, label: str) -> int:
    return int(float(shown(smi, label).split()[0]))


def pci_address(nvml: str) -> str:
    return nvml.lower()[-12:]


def pci_files(topology: Path) -> dict[str, str]:
    """What NCCL read from sysfs of each GPU, at the paths where it read it."""
    root = ElementTree.fromstring(topology.read_text())
    files = {}
    for cpu in root.iter("cpu"):
        for pci in cpu.iter("pci"):
            base = f"sys/bus/pci/devices/{pci.get('busid')}"
            for name in ("class", "vendor", "device", "subsystem_vendor", "subsystem_device"):
                files[f"{base}/{name}"] = pci.get(name, "")
            files[f"{base}/numa_node"] = cpu.get("numaid", "")
    return files


def meta_x1() -> dict[str, Any]:
    return {
        **META,
        "name": "h200-x1",
        "description": "One GPU of an HGX H200 in a virtual machine, NVLink not available, idle",
        "captured_s": 1795967760.0,  # Sun Nov 29 15:56:00 2026, as nvidia-smi says
        "boot_id": "5f0d1c5e-0000-4000-8000-000000000001",
        "filled_in": ["boot_id"],
    }


def meta_x2() -> dict[str, Any]:
    return {
        **META,
        "name": "h200-x2",
        "description": "Two GPUs of an HGX H200 behind NVSwitch in a virtual machine, idle",
        "captured_s": 1795967906.0,  # Sun Nov 29 15:58:26 2026, as nvidia-smi says
        "boot_id": "5f0d1c5e-0000-4000-8000-000000000002",
        "filled_in": ["boot_id", "nvml.system.nvml_version (of the same driver, from h200-x1)"],
    }


META: dict[str, Any] = {
    "schema": 1,
    "platform": "h200",
    "simulated": False,
    "driver": "580.159.04",
    "redacted": True,
}


def write(target: Path, raw: Path, nvml: dict[str, Any], meta: dict[str, Any]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    (target / "node.yaml").write_text(yaml.safe_dump(meta, sort_keys=False))
    (target / "nvml.json").write_text(json.dumps(nvml, indent=1) + "\n")
    for path, text in pci_files(raw / "nccl-topo-dump.xml").items():
        file = target / "root" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
