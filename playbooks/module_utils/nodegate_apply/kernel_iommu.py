"""host.iommu: the words by which this CPU's IOMMU is off, passes or translates, and what came of them.

https://docs.kernel.org/admin-guide/kernel-parameters.html: intel_iommu, amd_iommu, iommu, iommu.passthrough
"""

from __future__ import annotations

from .grub import UPDATE, BootLoader
from .host import Host, HostError
from .setting import Setting

GROUPS = "/sys/kernel/iommu_groups"
#: Words that say the same in other ways: taken out when ours are put in.
RIVALS = ("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough")
_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "intel": {
        "pt": ("intel_iommu=on", "iommu=pt"),
        "on": ("intel_iommu=on", "iommu=nopt"),
        "off": ("intel_iommu=off",),
    },
    "amd": {"pt": ("iommu=pt",), "on": ("iommu=nopt",), "off": ("amd_iommu=off",)},
    "arm": {"pt": ("iommu.passthrough=1",), "on": ("iommu.passthrough=0",), "off": ()},
}  # fmt: skip
_TYPES = {"identity": "pt", "DMA": "on", "DMA-FQ": "on"}


def iommu_words(host: Host, want: str | None) -> tuple[str, ...]:
    """Kernel arguments for this CPU; none when the profile asks for nothing. Raises HostError."""
    if want is None:
        return ()
    cpu = host.read("/proc/cpuinfo") or ""
    kind = "intel" if "GenuineIntel" in cpu else "amd" if "AuthenticAMD" in cpu else "arm"
    words = _WORDS[kind][want]
    if not words:
        raise HostError(
            f"host.iommu: {want} cannot be had by a kernel argument on this CPU;"
            " switch the SMMU off in the firmware, or correct the profile"
        )
    return words


def found(host: Host) -> str:
    """off, pt, on, or several when groups differ. Raises HostError."""
    groups = host.names(GROUPS)
    kinds = {(host.read(f"{GROUPS}/{group}/type") or "?").strip() for group in groups}
    return " and ".join(sorted({_TYPES.get(kind, kind) for kind in kinds})) or "off"


def iommu_setting(host: Host, loader: BootLoader, want: str) -> Setting:
    """As found in sysfs now; staged is what the words in the menu will make of it.

    Where the firmware keeps the IOMMU off, the words change nothing: it stays pending, and a role that is
    told that the node has been rebooted says so.
    """
    name, field = "IOMMU", "host.iommu"

    def same(seen: str, wanted: str) -> bool:
        # Groups that a driver took for itself (VFIO) may differ; the check host.iommu judges each card.
        return wanted in seen.split(" and ") if wanted != "off" else seen == "off"

    def staged() -> str | None:
        entries = loader.next(name)
        if not entries:
            return None
        words = iommu_words(host, want)
        missing = [word for word in words if not all(word in entry for entry in entries)]
        return f"without {' '.join(missing)}" if missing else want

    def read() -> str:
        iommu_words(host, want)  # refused when no argument can make it so
        return found(host)

    if not loader.is_grub:
        advice = (
            "this node does not boot by GRUB with update-grub: change its boot loader by hand, then reboot"
        )
        return Setting(name, field, want, read, same=same, advice=advice)
    advice = "switch VT-d, AMD-Vi or SMMU in the BIOS (role bios), then reboot"
    return Setting(name, field, want, read, lambda: None, staged, advice, same=same, after=UPDATE)
