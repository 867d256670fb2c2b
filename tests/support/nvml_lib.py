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

from nvml_h200 import BLACKWELL_LINKS, COLD_LATENCIES_US, H200, WARM_LATENCIES_US

__all__ = [
    "BLACKWELL_LINKS",
    "COLD_LATENCIES_US",
    "WARM_LATENCIES_US",
    "NvmlFile",
    "build_library",
    "pci_of",
    "uuid_of",
]

SOURCES = Path(__file__).parent.parent / "nvml"
LIBRARY = "libnvidia-ml.so.1"

BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)


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
