"""PCI functions, bridges and configuration space of filled-in nodes, as sysfs shows them.

Configuration space is shortened to the capabilities that matter (PCI Express, ACS); offsets are those of
include/uapi/linux/pci_regs.h.
"""

from __future__ import annotations

from typing import Any

_EXPRESS_AT = 0x60
_EXTENDED_AT = 0x100
_ENDPOINT, _ROOT_PORT, _UPSTREAM, _DOWNSTREAM = 0x0, 0x4, 0x5, 0x6
_SPEED_CODES = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_GENERIC_BRIDGES = {_ROOT_PORT: (0x1022, 0x1537), _UPSTREAM: (0x1000, 0xC030), _DOWNSTREAM: (0x1000, 0xC030)}


def config_space(
    ids: tuple[int, int],
    pci_class: int,
    speed_gts: float,
    width: int,
    *,
    kind: int = _ENDPOINT,
    max_read_b: int = 512,
    acs: int | None = None,
) -> dict[str, str]:
    """A configuration space with a PCI Express capability, and an ACS one if `acs` has its control bits."""
    data = bytearray(_EXTENDED_AT + 16)

    def put(at: int, value: int, size: int = 2) -> None:
        data[at : at + size] = value.to_bytes(size, "little")

    put(0x00, ids[0])
    put(0x02, ids[1])
    put(0x04, 0x0546)
    put(0x06, 0x0010)
    put(0x09, pci_class, 3)
    data[0x0E] = 0 if kind == _ENDPOINT else 1
    data[0x34] = _EXPRESS_AT
    link = _SPEED_CODES[speed_gts] | width << 4
    put(_EXPRESS_AT, 0x10)
    put(_EXPRESS_AT + 0x02, 0x0002 | kind << 4)
    put(_EXPRESS_AT + 0x08, ((max_read_b // 128).bit_length() - 1) << 12 | 0x20 | 0x10)
    put(_EXPRESS_AT + 0x0C, link, 4)
    put(_EXPRESS_AT + 0x12, link)
    if acs is None:
        put(_EXTENDED_AT, 0x0002_0001, 4)  # advanced error reporting, the last of the list
    else:
        put(_EXTENDED_AT, 0x0001_000D, 4)
        put(_EXTENDED_AT + 4, 0x005F)
        put(_EXTENDED_AT + 6, acs)
    return {"hex": data.hex()}


def function(
    address: str,
    ids: tuple[int, int],
    pci_class: int,
    *,
    speed_gts: float,
    width: int,
    numa_node: int,
    cpulist: str = "",
    max_read_b: int = 512,
    subsystem: tuple[int, int] | None = None,
    driver: str | None = None,
) -> dict[str, Any]:
    """Files of one endpoint."""
    base = f"sys/bus/pci/devices/{address}"
    sub = subsystem or ids
    found: dict[str, Any] = {
        f"{base}/vendor": f"{ids[0]:#06x}",
        f"{base}/device": f"{ids[1]:#06x}",
        f"{base}/subsystem_vendor": f"{sub[0]:#06x}",
        f"{base}/subsystem_device": f"{sub[1]:#06x}",
        f"{base}/class": f"{pci_class:#08x}",
        f"{base}/current_link_speed": f"{speed_gts} GT/s PCIe",
        f"{base}/current_link_width": str(width),
        f"{base}/max_link_speed": f"{speed_gts} GT/s PCIe",
        f"{base}/max_link_width": str(width),
        f"{base}/numa_node": str(numa_node),
        f"{base}/config": config_space(ids, pci_class, speed_gts, width, max_read_b=max_read_b),
        f"{base}/aer_dev_correctable": _aer(_CORRECTABLE, "TOTAL_ERR_COR"),
        f"{base}/aer_dev_nonfatal": _aer(_UNCORRECTABLE, "TOTAL_ERR_NONFATAL"),
        f"{base}/aer_dev_fatal": _aer(_UNCORRECTABLE, "TOTAL_ERR_FATAL"),
    }
    if cpulist:
        found[f"{base}/local_cpulist"] = cpulist
    return found


_CORRECTABLE = (
    "RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF",
)  # fmt: skip
_UNCORRECTABLE = (
    "Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC",
    "UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr",
    "PoisonTLPBlocked",
)  # fmt: skip


def _aer(names: tuple[str, ...], total: str) -> str:
    return "\n".join(f"{name} 0" for name in (*names, total))


def bridge(address: str, kind: int, numa_node: int, speed_gts: float) -> dict[str, Any]:
    """Files of one PCIe port above an endpoint, ACS off."""
    base = f"sys/bus/pci/devices/{address}"
    ids = _GENERIC_BRIDGES[kind]
    return {
        f"{base}/vendor": f"{ids[0]:#06x}",
        f"{base}/device": f"{ids[1]:#06x}",
        f"{base}/class": "0x060400",
        f"{base}/numa_node": str(numa_node),
        f"{base}/current_link_speed": f"{speed_gts} GT/s PCIe",
        f"{base}/current_link_width": "16",
        f"{base}/max_link_speed": f"{speed_gts} GT/s PCIe",
        f"{base}/max_link_width": "16",
        f"{base}/config": config_space(ids, 0x060400, speed_gts, 16, kind=kind, acs=0),
    }


def behind_one_switch(
    low_bus: int,
    endpoints: dict[int, str],
    numa_node: int,
    speed_gts: float,
    domain: str = "0000",
    root_gts: float = 32.0,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Files and links of a root port, a switch and its endpoints (by number of the downstream port)."""
    root, up = f"{domain}:{low_bus:02x}:01.0", f"{domain}:{low_bus + 1:02x}:00.0"
    files = bridge(root, _ROOT_PORT, numa_node, root_gts) | bridge(up, _UPSTREAM, numa_node, root_gts)
    top = f"../../../devices/pci{domain}:{low_bus:02x}/{root}"
    links = {f"sys/bus/pci/devices/{root}": top, f"sys/bus/pci/devices/{up}": f"{top}/{up}"}
    for number, address in endpoints.items():
        down = f"{domain}:{low_bus + 2:02x}:{number:02x}.0"
        files |= bridge(down, _DOWNSTREAM, numa_node, speed_gts)
        links[f"sys/bus/pci/devices/{down}"] = f"{top}/{up}/{down}"
        links[f"sys/bus/pci/devices/{address}"] = f"{top}/{up}/{down}/{address}"
        group_files, group_links = iommu_group(address)
        files |= group_files
        links |= group_links
    return files, links


def iommu_group(address: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The passthrough group that an endpoint is in."""
    domain, bus, _ = address.split(":")
    group = int(domain, 16) * 256 + int(bus, 16)
    link = {f"sys/bus/pci/devices/{address}/iommu_group": f"../../../../kernel/iommu_groups/{group}"}
    return {f"sys/kernel/iommu_groups/{group}/type": "identity"}, link


def vpd(name: str, part_number: str, serial: str) -> dict[str, str]:
    """Vital product data (PCI 3.0, appendix I): a name, a part number, a serial number, a checksum byte."""
    fields = b"".join(
        keyword + bytes([len(text)]) + text.encode()
        for keyword, text in ((b"PN", part_number), (b"SN", serial))
    )
    fields += b"RV\x01"
    head = b"\x82" + len(name).to_bytes(2, "little") + name.encode()
    head += b"\x90" + (len(fields) + 1).to_bytes(2, "little") + fields
    return {"hex": (head + bytes([-sum(head) % 256]) + b"\x78").hex()}


def behind_root_port(
    root: str, address: str, numa_node: int, speed_gts: float
) -> tuple[dict[str, Any], dict[str, str]]:
    """Files and links of an endpoint straight below a root port."""
    domain_bus = root.rsplit(":", 1)[0]
    top = f"../../../devices/pci{domain_bus}/{root}"
    files, links = iommu_group(address)
    return files | bridge(root, _ROOT_PORT, numa_node, speed_gts), links | {
        f"sys/bus/pci/devices/{root}": top,
        f"sys/bus/pci/devices/{address}": f"{top}/{address}",
    }
