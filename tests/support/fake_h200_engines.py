"""The engines' processes on the healthy H200 node of fake_h200.py: one main process each, a worker a GPU."""

from __future__ import annotations

from typing import Any

SLOTS = {"glm": range(4), "kimi": range(4, 8)}
MAIN = {"glm": 4242, "kimi": 4243}
#: CPUs of the two NUMA nodes; GPUs 0-3 are on node 0, 4-7 on node 1.
CPUS = ("0-47", "48-95")
VLLM = "Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0"
#: Where one of the engines comes from.
LAUNCH = {
    "command": ["/opt/vllm/bin/vllm", "serve"],
    "environment": {"path": "/opt/vllm", "packages": {"vllm": "0.32.0"}},
}


def launches() -> dict[str, Any]:
    """What is known of their launches: nothing is wrong."""
    return {
        name: {
            "flags": {"summary": "12 flags, all known to vllm 0.32.0", "facts": {"flags": 12}},
            "memory": {"summary": "weights 60.0 GiB of 130.0 GiB a GPU"},
            "checkpoint": {"summary": "96 shards as the index says"},
        }
        for name in SLOTS
    }


def engine_pids(name: str) -> list[int]:
    """Its main process and its workers."""
    return [MAIN[name], *(5000 + slot for slot in SLOTS[name])]


def stat_line(pid: int, name: str, ticks: int) -> str:
    """A line of /proc/PID/task/TID/stat with `ticks` of user time."""
    return f"{pid} ({name}) S 1 {pid} {pid} 0 -1 4194304 0 0 0 0 {ticks} 0 0 0 20 0 1 0 12345 0 0"


def _process(pid: int, name: str, cpus: str, nodes: str) -> dict[str, Any]:
    status = {
        "Name": name,
        "VmRSS": "2097152 kB",
        "RssAnon": "1048576 kB",
        "Cpus_allowed_list": cpus,
        "Mems_allowed_list": nodes,
    }
    return {
        f"proc/{pid}/task/{pid}/stat": stat_line(pid, name, 1000),
        f"proc/{pid}/comm": name,
        f"proc/{pid}/status": "\n".join(f"{key}:\t{value}" for key, value in status.items()),
    }


def engine_files() -> dict[str, Any]:
    """Their procfs files, and the CPUs of the NUMA nodes."""
    memory = ("MemTotal: 2113929216 kB", "MemFree: 1800000000 kB", "MemAvailable: 1900000000 kB")
    files: dict[str, Any] = {"proc/meminfo": "\n".join(memory)}
    files |= {f"sys/devices/system/node/node{node}/cpulist": cpus for node, cpus in enumerate(CPUS)}
    files["opt/vllm/lib/python3.12/site-packages/vllm-0.32.0.dist-info/METADATA"] = VLLM
    for name, slots in SLOTS.items():
        files |= _process(MAIN[name], "vllm", "0-95", "0-1")
        for slot in slots:
            files |= _process(5000 + slot, f"VLLM::Worker_TP{slot % 4}", CPUS[slot // 4], str(slot // 4))
    return files
