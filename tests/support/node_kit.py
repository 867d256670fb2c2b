"""Small node folders for tests, and a clock that they set."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml
from nodes import node_dir

UUID = "GPU-a1c0ffee-4e2d-5b7a-9c3f-0d15ea5e0000"
_META: dict[str, Any] = {
    "schema": 1, "name": "small", "simulated": True, "captured_s": 1000.0, "captured_mono_s": 100.0,
    "boot_id": "b-1",
}  # fmt: skip
_GPU: dict[str, Any] = {
    "identity": {"index": 0, "uuid": UUID, "pci_bus_id": "0000:1b:00.0"},
    "thermal": {"margin_c": 40, "slowdown_c": {"error": "NOT_SUPPORTED"}},
    "nvlink": {"states": [True, True]},
}
_NETDEV: dict[str, Any] = {
    "link": {"operstate": "up", "carrier": True, "mtu_bytes": 9000},
    "ethtool": {"rx_prio3_pause": 5},
    "dcb": {"pfc_on": [False] * 8, "trust": "pcp", "dscp_to_priority": {}},
}


class SetClock:
    """A clock that stands until it is set."""

    def __init__(self, mono_s: float = 5000.0) -> None:
        self.now_s = mono_s

    def mono_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1_800_000_000.0 + self.now_s

    def boot_id(self) -> str:
        return "b-1"


def small_documents() -> dict[str, Any]:
    """The documents of a node with one GPU and one interface, by file name."""
    return copy.deepcopy(
        {
            "node.yaml": _META,
            "nvml.json": {
                "system": {
                    "driver_version": "580.1",
                    "nvml_version": "13.580.1",
                    "cuda_version": 13000,
                    "device_count": 1,
                },
                "gpus": [_GPU],
            },
            "net.json": {"eth0": _NETDEV, "eth0.7": _NETDEV},
            "links.json": {"sys/class/net/eth0/device": "../../../0000:18:00.0"},
        }
    )


def write_node(
    folder: Path, documents: dict[str, Any] | None = None, kmsg: str | None = "6,1,90000000,-;NVRM: x\n"
) -> Path:
    """Write a node folder; a document that is a string is written as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in (documents if documents is not None else small_documents()).items():
        dump = yaml.safe_dump if name.endswith(".yaml") else json.dumps
        (folder / name).write_text(document if isinstance(document, str) else dump(document))
    if kmsg is not None:
        (folder / "kmsg.txt").write_text(kmsg)
    counter = folder / "root/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text("3\n")
    return folder


def write_scenario(folder: Path, steps: list[dict[str, Any]] | str, name: str = "scenario.yaml") -> Path:
    """Write a scenario file."""
    path = folder / name
    path.write_text(steps if isinstance(steps, str) else yaml.safe_dump({"name": "test", "steps": steps}))
    return path


def demo_node() -> Path:
    """The demo's node."""
    return node_dir("h200-roce")


def host_document() -> dict[str, Any]:
    """host.json with one entry of each part."""
    return {
        "units": {
            "nvidia-fabricmanager.service": {
                "load_state": "loaded", "active_state": "active", "sub_state": "running", "restarts": 0,
                "since_mono_s": 30.0,
            }
        },
        "disks": {
            "/": {
                "total_b": 1000, "free_b": 600, "total_inodes": 100, "free_inodes": 60, "read_only": False,
            }
        },
        "mounts": {"/models": {"answered": True, "latency_s": 0.001, "problem": "", "marker": True}},
        "clock": {"synchronised": True, "offset_s": 0.0, "max_error_s": 0.001},
        "reach": {"198.51.100.2:29500": {"accepted": True, "latency_s": 0.001, "problem": ""}},
    }  # fmt: skip


def bmc_document() -> dict[str, Any]:
    """bmc.json with one service of two documents."""
    return {
        "node": {
            "/redfish/v1": {"Chassis": {"@odata.id": "/redfish/v1/Chassis"}},
            "/redfish/v1/Chassis": {
                "Members": [{"@odata.id": "/redfish/v1/Chassis/1"}], "Temperatures": [{"Reading": 30.0}],
                "SerialNumber": "BMC-4711-XYZ", "HostName": "bmc-rack7", "Note": "at 192.0.2.17",
            },
            "/redfish/v1/Chassis/1": {"error": "TIMEOUT"},
        }
    }  # fmt: skip
