"""SIMULATED NVML: compiles tests/nvml/*.c to `libnvidia-ml.so.1` and writes the file that drives it.

The real nvidia-ml-py loads that library (LD_LIBRARY_PATH), so tests exercise the real binding without a GPU.
The default node is an HGX H200 with eight GPUs; values and call latencies are those measured on real ones.
UUIDs, serial numbers and PCI addresses are made up. tests/nvml/nvml_file.h describes the keys.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "nvml"
LIBRARY = "libnvidia-ml.so.1"

BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)

#: Idle HGX H200, driver 580.159.04.
H200: dict[str, object] = {
    "gpu.name": "NVIDIA H200",
    "gpu.vbios": "96.00.A5.00.1A",
    "gpu.temperature": 38,
    "gpu.margin": 50,
    "gpu.threshold.0": 95,
    "gpu.threshold.1": 89,
    "gpu.threshold.2": 95,
    "gpu.threshold.3": 87,
    "gpu.field.82": 38,
    "gpu.field.193": -8,
    "gpu.field.194": -2,
    "gpu.field.195": 0,
    "gpu.field.196": 0,
    "gpu.power_mw": 77624,
    "gpu.enforced_limit_mw": 700000,
    "gpu.requested_limit_mw": 700000,
    "gpu.default_limit_mw": 700000,
    "gpu.min_limit_mw": 200000,
    "gpu.max_limit_mw": 700000,
    "gpu.persistence": 1,
    "gpu.event_reasons": 1,
    "gpu.clock.1": 345,
    "gpu.max_clock.1": 1980,
    "gpu.utilization_gpu": 0,
    "gpu.utilization_memory": 0,
    "gpu.memory_total": 150754820096,
    "gpu.memory_used": 644939776,
    "gpu.ecc_current": 1,
    "gpu.ecc_pending": 1,
    "gpu.ecc.0.0": 0,
    "gpu.ecc.1.0": 0,
    "gpu.ecc.0.1": 0,
    "gpu.ecc.1.1": 0,
    "gpu.remap_corrected": 0,
    "gpu.remap_uncorrected": 0,
    "gpu.remap_pending": 0,
    "gpu.remap_failure": 0,
    "gpu.field.230": 0,
    "gpu.links": 18,
    "gpu.field.91": 18,
    "gpu.field.165": 1,
    "gpu.field.164": 26562,
    "gpu.field.161": 0,
    "gpu.field.162": 0,
    "gpu.field.163": 0,
    "gpu.fabric_state": 3,
    "gpu.fabric_status": 0,
    "gpu.fabric_health_mask": 0,
    "gpu.fabric_clique_id": 0,
    "gpu.pcie_generation": 5,
    "gpu.pcie_max_generation": 5,
    "gpu.pcie_width": 16,
    "gpu.pcie_max_width": 16,
    "gpu.pcie_replays": 1,
    "gpu.processes": "",
    "gpu.field.1": 1,
    "gpu.field.192": 700000,
    "gpu.field.74": 812400000000,
    "gpu.field.269": 0,
    "gpu.field.270": 0,
    "gpu.field.271": 0,
    "gpu.ecc.0.0.2": 0,
    "gpu.ecc.1.0.2": 0,
    "gpu.ecc.0.0.7": 0,
    "gpu.ecc.1.0.7": 0,
    "gpu.sram.parity": 0,
    "gpu.sram.secded": 0,
    "gpu.sram.exceeded": 0,
    "gpu.histogram.max": 3072,
    "gpu.histogram.high": 0,
    "gpu.histogram.partial": 0,
    "gpu.histogram.low": 0,
    "gpu.histogram.none": 0,
    "gpu.channel_repair_pending": 0,
    "gpu.tpc_repair_pending": 0,
    "gpu.app_clock.1": 1980,
    "gpu.field.169": 493,
    "gpu.field.173": 0,
    "gpu.field.174": 0,
    "gpu.field.175": 9,
    "gpu.field.176": 9,
    "gpu.field.177": 9,
    "gpu.field.178": 0,
    "gpu.field.179": 0,
    "gpu.field.180": 0,
    "gpu.p2p.0": 0,
    "gpu.p2p.2": 0,
    "gpu.topology": 50,
    **{f"gpu{a}.topology.{b}": 30 for a in range(8) for b in range(8) if a // 4 == b // 4},
    "gpu.event_types": 65439,
}

#: What a GPU of the Blackwell generation has besides: error counters and packed bit error rates by link.
BLACKWELL_LINKS: dict[str, object] = {
    **{f"gpu.field.{field}": 0 for field in (*range(206, 215), 219, 221)},
    "gpu.field.220": 0x0FFE,
    "gpu.field.222": 0x0FEE,
}

#: Microseconds of the first call, measured on an H200; later calls of the same family are far faster.
COLD_LATENCIES_US: dict[str, int] = {
    "nvmlInitWithFlags": 11485,
    "nvmlSystemGetDriverVersion": 57,
    "nvmlSystemGetNVMLVersion": 18,
    "nvmlSystemGetCudaDriverVersion": 23,
    "nvmlDeviceGetUUID": 31,
    "nvmlDeviceGetPciInfo_v3": 49,
    "nvmlDeviceGetName": 28,
    "nvmlDeviceGetSerial": 88,
    "nvmlDeviceGetVbiosVersion": 27,
    "nvmlDeviceGetMinorNumber": 13,
    "nvmlDeviceGetTemperature": 522,
    "nvmlDeviceGetMarginTemperature": 2146,
    "nvmlDeviceGetPowerUsage": 1884,
    "nvmlDeviceGetEnforcedPowerLimit": 9,
    "nvmlDeviceGetPowerManagementLimit": 447,
    "nvmlDeviceGetPowerManagementDefaultLimit": 11,
    "nvmlDeviceGetPowerManagementLimitConstraints": 15,
    "nvmlDeviceGetPersistenceMode": 29,
    "nvmlDeviceGetCurrentClocksEventReasons": 470,
    "nvmlDeviceGetClockInfo": 481,
    "nvmlDeviceGetMaxClockInfo": 2957,
    "nvmlDeviceGetUtilizationRates": 973,
    "nvmlDeviceGetMemoryInfo": 70,
    "nvmlDeviceGetEccMode": 2053,
    "nvmlDeviceGetTotalEccErrors": 37,
    "nvmlDeviceGetRemappedRows": 1814,
    "nvmlDeviceGetFieldValues": 90,
    "field.164": 13,
    "field.165": 13,
    # NVLink error counters, each link's: by far the slowest values. 860 on an idle GPU, 430 on a busy one.
    "field.161": 860,
    "field.162": 860,
    "field.163": 860,
    "nvmlDeviceGetGpuFabricInfoV": 231,
    "nvmlDeviceGetCurrPcieLinkGeneration": 1906,
    "nvmlDeviceGetMaxPcieLinkGeneration": 28,
    "nvmlDeviceGetCurrPcieLinkWidth": 128,
    "nvmlDeviceGetMaxPcieLinkWidth": 48,
    "nvmlDeviceGetPcieReplayCounter": 482,
    "nvmlDeviceGetComputeRunningProcesses_v3": 60,
}


def build_library(folder: Path | None = None, *, hide: Iterable[str] = ()) -> Path:
    """Compile the library into `folder` (a new temporary one by default) without the functions in `hide`."""
    folder = folder or Path(tempfile.mkdtemp(prefix="nodegate-nvml-"))
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    hidden = folder / "hidden.map"
    names = "".join(f"{name};" for name in hide)
    hidden.write_text(f"{{ local: {names} }};\n" if names else "{ global: *; };\n")
    subprocess.run(
        ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC",
         f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script={hidden}",
         "-o", str(library), *(str(source) for source in sorted(SOURCES.glob("*.c")))],
        check=True,
        timeout=120,
    )  # fmt: skip
    return library


def uuid_of(number: int) -> str:
    """The made-up UUID of the GPU with this number in the file."""
    return f"GPU-a0000000-0000-4000-8000-{number:012x}"


def pci_of(number: int) -> str:
    """The PCI address (dddd:bb:dd.f) of the GPU with this number in the file."""
    return f"0000:{BUSES[number]:02x}:00.0"


class NvmlFile:
    """The file behind the library: keys as in nvml_file.h, written whole and atomically at every change."""

    def __init__(self, path: Path, *, gpus: int = 8, latencies_us: Mapping[str, int] | None = None) -> None:
        self.path = path
        self.values: dict[str, object] = {
            "driver_version": "580.159.04",
            "nvml_version": "13.580.159.04",
            "cuda_version": 13000,
            "count": gpus,
            **H200,
        }
        for number in range(gpus):
            self.values |= {
                f"gpu{number}.uuid": uuid_of(number),
                f"gpu{number}.pci_bus_id": f"0000{pci_of(number).upper()}",
                f"gpu{number}.serial": f"16000000000{number:02d}",
                f"gpu{number}.minor": number,
            }
        self.values |= {f"us.{call}": us for call, us in (latencies_us or {}).items()}
        self.write()

    def write(self) -> None:
        """Replace the file by the current values."""
        text = "# SIMULATED NVML\n" + "".join(f"{key} = {value}\n" for key, value in self.values.items())
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.path)

    def set(self, changes: Mapping[str, object]) -> None:
        """Change some values."""
        self.values |= changes
        self.write()

    def remove(self, *keys: str) -> None:
        """Take values away: the library then answers Not Supported."""
        for key in keys:
            del self.values[key]
        self.write()

    def fault(self, fault: str, *, gpu: int | None = None, call: str | None = None) -> None:
        """Inject a fault (hang, abort, segv, noise, an NVML error name; `none` ends it) into calls."""
        parts = [*([f"gpu{gpu}"] if gpu is not None else []), "fault", *([call] if call else [])]
        if len(parts) < 2:
            raise ValueError("a fault needs a GPU or a call")
        self.set({".".join(parts): fault})

    def env(self, library: Path) -> dict[str, str]:
        """The environment variables with which a process meets this library and this file."""
        folders = [str(library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(folders), "NODEGATE_TEST_NVML": str(self.path)}
