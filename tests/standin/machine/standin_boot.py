"""What happens to the stand-in node at boot; run by standin-boot.service before anything reads the state.

`python3 standin_boot.py` does both parts; `--state` only the files, without mounts, for tests outside a host.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys

import standin
import standin_pci
import standin_table as table
from standin import BASE, Machine, poke, sysfs

ROOT = pathlib.Path("/")
GRUB = "boot/grub/grub.cfg"


def command_line(root: pathlib.Path) -> str:
    """The kernel's command line as the boot loader has it."""
    try:
        text = (root / GRUB).read_text(encoding="utf-8")
    except FileNotFoundError:
        return f"{table.KERNEL} {table.FIRST_CMDLINE}"
    found = re.search(r"^\s*linux\s+\S*?(/vmlinuz\S*)\s+(.*)$", text, re.MULTILINE)
    if found is None:
        return f"{table.KERNEL} {table.FIRST_CMDLINE}"
    return f"BOOT_IMAGE={found[1]} {found[2].strip()}"


def argument(line: str, name: str) -> str | None:
    """The last value of an argument of the command line."""
    values = [word[len(name) + 1 :] for word in line.split() if word.startswith(f"{name}=")]
    return values[-1] if values else None


def reset_gpus(machine: Machine) -> None:
    """The installed driver runs, limits and persistence go, staged modes come."""
    version = machine.own["driver_version"]
    machine.nvml["system"] |= {"driver_version": version, "nvml_version": f"13.{version}"}
    for gpu in machine.gpus:
        power = gpu["power"]
        power["requested_limit_w"] = power["enforced_limit_w"] = power["default_limit_w"]
        power["persistence"] = False
        modes = machine.own["gpus"][gpu["identity"]["uuid"]]
        gpu["memory"]["ecc_enabled"] = modes["ecc_pending"]
        gpu["ecc"]["mig_enabled"] = modes["mig_pending"]


def load_nics(machine: Machine) -> None:
    """Staged configuration becomes current, burned firmware runs."""
    for name, nic in machine.nics.items():
        load_nic(machine, name, nic)


def load_nic(machine: Machine, name: str, nic: dict) -> None:  # type: ignore[type-arg]
    """What a reset of one NIC, or a boot, does to it."""
    for value in nic["nv"].values():
        value["current"] = value["next"]
    nic["running"] = nic["burned"]
    machine.poke(sysfs(f"class/infiniband/{name}/fw_ver"), nic["running"])
    machine.net[nic["netdev"]]["driver"]["firmware"] = f"{nic['running']} ({nic['psid']})"
    ecn = f"class/net/{nic['netdev']}/ecn/roce_np"
    machine.poke(sysfs(f"{ecn}/cnp_dscp"), str(nic["nv"]["CNP_DSCP_P1"]["current"]))
    machine.poke(sysfs(f"{ecn}/cnp_802p_prio"), str(nic["nv"]["CNP_802P_PRIO_P1"]["current"]))
    reset_port(machine, nic)


def reset_port(machine: Machine, nic: dict) -> None:  # type: ignore[type-arg]
    """The driver starts anew: a port has its factory settings."""
    port = machine.net[nic["netdev"]]
    port["dcb"] = {"pfc_on": [False] * 8, "trust": "pcp", "dscp_to_priority": {}, "host_managed": False}
    port["pause"] = {"autonegotiated": False, "rx": True, "tx": True}
    port["link"]["mtu_bytes"] = table.FACTORY_MTU_BYTES
    port["ring"] = dict(table.FACTORY_RING)
    standin_pci.set_read_request(nic["bdf"], table.FACTORY_READ_REQUEST_BYTES)


def reset_files(line: str, root: pathlib.Path) -> None:
    """sysfs and procfs after a boot with this command line."""
    for pattern, text in table.VOLATILE:
        for path in (BASE / "sys").glob(pattern):
            poke(path, text)
    for path, wanted in ((table.THP, "transparent_hugepage"), (table.ASPM, "pcie_aspm.policy")):
        line_of_choices = table.CHOICES[path]
        choice = argument(line, wanted)
        poke(sysfs(path), (choice and standin.choose(line_of_choices, choice)) or line_of_choices)
    kind = "identity" if argument(line, "iommu") == "pt" or "iommu.passthrough=1" in line else "DMA-FQ"
    for path in (BASE / "sys").glob("kernel/iommu_groups/*/type"):
        poke(path, kind)
    size_kb, pages = "2048", {"2048": "0", "1048576": "0"}
    for word in line.split():
        name, _, value = word.partition("=")
        if name == "hugepagesz":
            size_kb = {"1G": "1048576", "2M": "2048"}.get(value.upper(), size_kb)
        elif name == "hugepages":
            pages[size_kb] = value
    for size, count in pages.items():
        poke(sysfs(f"kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"), count)
    poke(BASE / "proc/cmdline", line)
    poke(BASE / "proc/swaps", swaps(root))


def swaps(root: pathlib.Path) -> str:
    """/proc/swaps for the swap areas of /etc/fstab."""
    lines = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    with contextlib.suppress(FileNotFoundError):
        for row in (root / "etc/fstab").read_text(encoding="utf-8").splitlines():
            words = row.split()
            if len(words) >= 3 and not row.startswith("#") and words[2] == "swap":
                lines.append(f"{words[0]}\t\t\t\tfile\t\t8388604\t\t0\t\t-2")
    return "\n".join(lines)


def load_modules(root: pathlib.Path) -> None:
    """Modules that are loaded after a boot."""
    for path in (BASE / "sys/module").glob("*/initstate"):
        if path.parent.name != "pcie_aspm":
            shutil.rmtree(path.parent)
    banned = set()
    for file in sorted((root / "etc/modprobe.d").glob("*.conf")):
        for row in file.read_text(encoding="utf-8").splitlines():
            words = row.split()
            if len(words) > 1 and (words[0] == "blacklist" or words[0::2] == ["install", "/bin/false"]):
                banned.add(words[1].replace("-", "_"))
    asked = [*table.MODULES, *table.UNWANTED]
    for file in sorted((root / "etc/modules-load.d").glob("*.conf")):
        rows = file.read_text(encoding="utf-8").splitlines()
        asked += [row.strip().replace("-", "_") for row in rows if row.strip() and row[0] not in "#;"]
    for name in asked:
        if name not in banned and name in table.KNOWN:
            load_module(name)


def load_module(name: str) -> None:
    """What the kernel shows of a module that is loaded."""
    poke(sysfs(f"module/{name}/initstate"), "live")
    poke(sysfs(f"module/{name}/refcnt"), "0")
    version = standin.json.loads((BASE / "machine.json").read_text())["driver_version"]
    if name in table.VERSIONED:
        poke(sysfs(f"module/{name}/version"), version)


def name_boot() -> None:
    """The node folder tells which boot it is."""
    path = BASE / "node/node.yaml"
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    standin.write_whole(path, re.sub(r"(?m)^boot_id: .*$", f"boot_id: {boot_id}", path.read_text()))


def state(root: pathlib.Path = ROOT) -> None:
    """All files of the state as a boot leaves them."""
    with Machine() as machine:
        reset_gpus(machine)
        load_nics(machine)
    standin_pci.switch_acs_on()
    reset_files(command_line(root), root)
    load_modules(root)
    name_boot()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=30)


def own_proc_sys() -> None:
    """Kernel settings that all namespaces share, as a copy: what is written here changes no other machine."""
    copies = pathlib.Path("/run/standin")
    copies.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", "mode=0755,size=16m", "standin", str(copies))
    for name in table.COPIED:
        _copy(pathlib.Path("/proc/sys") / name, copies / name)
    line = (BASE / "proc/cmdline").read_text(encoding="utf-8")
    off = {"kernel/numa_balancing": "0"} if argument(line, "numa_balancing") == "disable" else {}
    for path, value in {**table.SYSCTLS, **off}.items():
        (copies / path).write_text(value + "\n", encoding="utf-8")
    for name in table.COPIED:
        _run("mount", "--bind", str(copies / name), f"/proc/sys/{name}")
    for name in ("cmdline", "swaps"):
        _run("mount", "--bind", str(BASE / "proc" / name), f"/proc/{name}")


def _copy(folder: pathlib.Path, to: pathlib.Path) -> None:
    """Copy what can be read; a key that only shows when it is written (compact_memory) is left empty."""
    to.mkdir()
    for entry in folder.iterdir():
        if entry.name == "binfmt_misc":
            continue
        if entry.is_dir():
            _copy(entry, to / entry.name)
            continue
        data = b""
        with contextlib.suppress(OSError):
            data = entry.read_bytes()
        (to / entry.name).write_bytes(data)


def main() -> None:
    """Boot."""
    state()
    if "--state" not in sys.argv:
        own_proc_sys()


if __name__ == "__main__":
    main()
