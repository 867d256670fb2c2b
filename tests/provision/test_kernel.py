"""Role kernel: what a profile asks of Linux, made so on a node in memory, or refused in one line."""

import copy

import pytest
from apply_host import ApplyHost, said
from nodegate_apply.host import HostError
from nodegate_apply.kernel import batches, kernel_groups, part_of, wanted_kernel
from nodegate_apply.kernel_sysctl import sysctl_settings
from nodegate_apply.setting import settle

from agent.profile_loader import profile_from_dict

HOST = {
    "kernel_args": ["mitigations=off", "numa_balancing=disable"],
    "kernel_args_absent": ["quiet", "nouveau.modeset"],
    "iommu": "pt",
    "sysctl": {
        "vm.swappiness": 1, "net.ipv4.tcp_rmem": "4096 67108864 1073741824", "net.ipv4.conf.*.arp_ignore": 1,
    },
    "modules": ["ib_umad", "nvidia_uvm"],
    "modules_absent": ["nouveau"],
    "engine_limits": {"Max locked memory": "unlimited", "Max open files": 1048576},
    "hugepages": {"2048": 1024},
    "transparent_hugepage": "madvise",
    "cpu_governor": "performance",
    "aspm": "performance",
    "acs": "off",
    "swap": False,
    "services": {
        "irqbalance.service": "active", "unattended-upgrades.service": "inactive",
        "nvidia-persistenced.service": "active",
    },
    "time_sync": True,
    "mounts": [
        {"path": "/models", "fs_type": "nfs4", "source": "store:/models", "read_only": True, "marker": "ok"},
    ],
}  # fmt: skip
GRUB_CFG = """\
menuentry 'Debian GNU/Linux' --class debian {{
        linux   /boot/vmlinuz-6.8 root=UUID=1 ro {words}
}}
menuentry 'Debian GNU/Linux, with Linux 6.8 (recovery mode)' {{
        linux   /boot/vmlinuz-6.8 root=UUID=1 ro single
}}
"""
FSTAB = "UUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n"
BRIDGE, GPU = "0000:14:01.0", "0000:15:00.0"


def profile(**changes):
    """The parts that the role is given."""
    data = {
        "gpus": {"count": 1},
        "nvlink": {"links_per_gpu": 0},
        "fabric": {"kind": "none"},
        "host": copy.deepcopy(HOST) | changes,
    }
    return profile_from_dict(data).profile.model_dump(mode="json")


def config(acs):
    """PCI configuration space with ACS at 0x100."""
    data = bytearray(0x108)
    data[0x100:0x104] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x106:0x108] = acs.to_bytes(2, "little")
    return bytes(data)


class Node(ApplyHost):
    """A Debian node as it was installed."""

    def __init__(self, root):
        super().__init__(root)
        self.words = "quiet"
        for path, text in {
            "/proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz-6.8 root=UUID=1 ro quiet\n",
            "/proc/cpuinfo": "vendor_id\t: GenuineIntel\n",
            "/proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n",
            "/proc/self/mounts": "/dev/sda1 / ext4 rw 0 0\n",
            "/proc/sys/kernel/osrelease": "6.8\n",
            "/proc/sys/vm/swappiness": "60\n",
            "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
            "/proc/sys/net/ipv4/conf/all/arp_ignore": "0\n",
            "/proc/sys/net/ipv4/conf/eth0/arp_ignore": "1\n",
            "/sys/module/nouveau/initstate": "live\n",
            "/sys/module/nouveau/refcnt": "1\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
            "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
            "/sys/module/pcie_aspm/parameters/policy": "[default] performance powersave powersupersave\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors": "performance powersave\n",
            f"/sys/devices/pci0000:14/{BRIDGE}/config": "",
            f"/sys/devices/pci0000:14/{BRIDGE}/{GPU}/vendor": "0x10de\n",
            f"/sys/devices/pci0000:14/{BRIDGE}/{GPU}/class": "0x030200\n",
            "/etc/fstab": FSTAB,
            "/boot/grub/grub.cfg": GRUB_CFG.format(words="quiet"),
        }.items():
            self.put(path, text)
        self.link(f"/sys/bus/pci/devices/{BRIDGE}", f"../../../devices/pci0000:14/{BRIDGE}")
        self.link(f"/sys/bus/pci/devices/{GPU}", f"../../../devices/pci0000:14/{BRIDGE}/{GPU}")
        self.path(f"/sys/bus/pci/devices/{BRIDGE}/config").write_bytes(config(0x1D))
        for name in ("irqbalance.service", "unattended-upgrades.service", "chrony.service"):
            self.systemd.add(name)
        self.systemd.units["unattended-upgrades.service"] = ["loaded", "active", "enabled"]
        self.systemd.swaps = {
            "dev-sdb1.swap": ("generated", ""),
            "dev-sda2.swap": ("generated", "/etc/fstab"),
        }
        self.programs |= {
            "update-grub": self.update_grub, "modprobe": self.modprobe, "swapoff": self.swapoff,
            "setpci": self.setpci, "stat": lambda _: said(), "update-initramfs": lambda _: said(),
        }  # fmt: skip

    def poke(self, path, text):
        offered = {
            "enabled": "always madvise never",
            "policy": "default performance powersave powersupersave",
        }
        words = offered.get(path.rsplit("/", 1)[-1])
        if words:
            text = " ".join(f"[{word}]" if word == text else word for word in words.split())
        super().poke(path, text)

    def update_grub(self, _):
        text = self.read("/etc/default/grub.d/60-nodegate.cfg") or ""
        last = [line for line in text.splitlines() if line.startswith("GRUB_CMDLINE_LINUX_DEFAULT=")]
        words = last[-1].split("}", 1)[1].strip('" ') if last else "quiet"
        self.put("/boot/grub/grub.cfg", GRUB_CFG.format(words=words))
        return said()

    def modprobe(self, argv):
        self.put(f"/sys/module/{argv[-1]}/initstate", "live\n")
        return said()

    def swapoff(self, _):
        self.put("/proc/swaps", "Filename Type Size Used Priority\n")
        return said()

    def setpci(self, argv):
        assert argv == ["-s", BRIDGE, "ECAP_ACS+6.w=0:2c"]
        self.path(f"/sys/bus/pci/devices/{BRIDGE}/config").write_bytes(config(0x11))
        return said()

    def reboot(self):
        """The next boot: grub's words, no nouveau, an IOMMU."""
        words = self.text("/boot/grub/grub.cfg").splitlines()[1].split(maxsplit=2)[2]
        self.put("/proc/cmdline", words)
        if self.exists("/etc/modprobe.d/nodegate.conf"):
            for name in ("initstate", "refcnt"):
                self.remove(f"/sys/module/nouveau/{name}")
            self.path("/sys/module/nouveau").rmdir()
        if "iommu=pt" in words:
            self.put("/sys/kernel/iommu_groups/0/type", "identity\n")


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def mounting(node):
    """systemctl restart of the mount's unit mounts it."""
    systemctl = node.programs["systemctl"]

    def call(argv):
        if argv[:1] == ["restart"]:
            node.put("/proc/self/mounts", "store:/models /models nfs4 ro,vers=4.2 0 0\n")
        if argv[:1] == ["enable"] and argv[1] == "models.mount":
            node.put("/etc/systemd/system/remote-fs.target.wants/models.mount", "")
        return systemctl(argv)

    node.programs["systemctl"] = call
    return node


def run(node, prof=None, **how):
    prof = prof or profile()
    wanted = wanted_kernel(prof, node, settled=how.get("settled", False))
    return settle(wanted, groups=kernel_groups(node), **how)


def test_a_fresh_node_is_made_so_and_the_second_run_changes_nothing(mounting):
    node = mounting
    looked = run(node, check=True)
    assert looked.changed and not looked.problems
    assert node.text("/proc/sys/vm/swappiness") == "60\n" and node.text("/etc/fstab") == FSTAB
    report = run(node)
    assert report.problems == [] and report.drift == looked.drift
    assert node.text("/proc/sys/vm/swappiness") == "1\n"
    assert "host.sysctl" in node.text("/etc/sysctl.d/60-nodegate.conf")
    assert node.text("/etc/fstab").endswith("# nodegate (host.swap: false): UUID=2 none swap sw 0 0\n")
    assert sorted(name.split(" = ")[0] for name in report.pending) == [
        "IOMMU", "kernel argument mitigations=off", "kernel argument numa_balancing=disable",
        "kernel argument quiet", "module nouveau",
    ]  # fmt: skip
    again = run(node)
    assert not again.changed and not again.problems and len(again.pending) == 5
    node.reboot()
    last = run(node, settled=True)
    assert not last.changed and not last.pending and not last.problems


def test_units_and_modules_of_the_gpu_driver_are_left_to_role_gpu(node):
    names = {setting.name for setting in wanted_kernel(profile(), node)}
    assert "module ib_umad" in names and "module nvidia_uvm" not in names
    assert "service irqbalance.service" in names and "service nvidia-persistenced.service" not in names


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kernel_args", ["mitigations=auto"]), ("kernel_args_absent", ["splash"]), ("iommu", "on"),
        ("sysctl", {"vm.swappiness": 2}), ("modules", ["ib_umad", "rdma_cm"]),
        ("modules_absent", ["i2c_nvidia_gpu"]),
        ("engine_limits", {"Max open files": 2048}), ("hugepages", {"2048": 1}),
        ("transparent_hugepage", "never"),
        ("cpu_governor", "powersave"), ("aspm", "powersave"), ("acs", None), ("swap", None),
        ("services", {"irqbalance.service": "inactive"}), ("time_sync", None),
        ("mounts", [{"path": "/models", "marker": "other"}]),
    ],
)  # fmt: skip
def test_a_changed_field_changes_what_is_wanted(node, field, value):
    def wishes(prof):
        return [(s.name, s.want) for s in wanted_kernel(prof, node)]

    assert wishes(profile()) != wishes(profile(**{field: value}))


def test_a_key_that_the_kernel_lacks_is_refused_before_anything_is_written(node):
    wanted = profile(sysctl={"vm.swappiness": 1, "dev.iommu.enabled": 1}, modules=[])
    report = run(node, wanted)
    assert report.problems == [
        "dev.iommu.enabled (host.sysctl.dev.iommu.enabled): this kernel has no dev.iommu.enabled: setting it"
        " does nothing; take it out of host.sysctl in the profile, or load the module or run the kernel that"
        " has it"
    ]
    assert node.text("/proc/sys/vm/swappiness") == "60\n" and not node.exists(
        "/etc/sysctl.d/60-nodegate.conf"
    )


CONNTRACK = {"net.netfilter.nf_conntrack_max": 1048576, "vm.swappiness": 1}


@pytest.mark.parametrize("typo", [False, True])
def test_a_key_of_a_module_is_set_in_the_run_that_loads_it(node, typo):
    def modprobe(argv):
        node.put("/proc/sys/net/netfilter/nf_conntrack_max", "262144\n")
        return node.modprobe(argv)

    node.programs["modprobe"] = modprobe
    sysctl = CONNTRACK | ({"net.netfilter.nf_contrack_max": 1} if typo else {})
    wanted = profile(modules=["nf_conntrack"], sysctl=sysctl, kernel_args=[], kernel_args_absent=[])
    assert not run(node, wanted, check=True).problems
    report = settle(wanted_kernel(wanted, node)[: 4 + typo])
    if typo:
        (line,) = report.problems
        assert "no net.netfilter.nf_contrack_max" in line and node.text("/proc/sys/vm/swappiness") == "60\n"
        assert not node.exists("/etc/sysctl.d/60-nodegate.conf")
    else:
        assert not report.problems
        assert node.text("/proc/sys/net/netfilter/nf_conntrack_max") == "1048576\n"


def test_a_key_that_is_read_only_is_refused_first(node):
    node.put("/proc/sys/kernel/ngroups_max", "65536\n")
    node.path("/proc/sys/kernel/ngroups_max").chmod(0o444)
    (line,) = run(node, profile(sysctl={"kernel.ngroups_max": 1, "vm.swappiness": 1})).problems
    assert "is 65536 and read-only in this kernel" in line
    assert node.text("/proc/sys/vm/swappiness") == "60\n"
    assert not settle(sysctl_settings(node, {"kernel.ngroups_max": 65536}), check=True).problems


def test_fstab_keeps_what_is_not_swap_and_bytes_that_cannot_be_kept_are_left(node):
    text = (
        "# first\n\nUUID=1\t/ ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n"
        "#UUID=3 none swap sw 0 0\n/x /y none bind 0 0"
    )
    node.put("/etc/fstab", text)
    node.path("/etc/fstab").chmod(0o664)
    setting = next(one for one in wanted_kernel(profile(), node) if one.name == "/etc/fstab swap")
    setting.write()
    assert node.text("/etc/fstab") == text.replace("UUID=2", "# nodegate (host.swap: false): UUID=2")
    assert node.mode("/etc/fstab") == 0o664 and setting.read() == "none"
    node.path("/etc/fstab").write_bytes(b"# Gr\xf6\xdfe\n/swap none swap sw 0 0\n")
    with pytest.raises(HostError, match="no UTF-8"):
        setting.write()
    assert b"\xf6" in node.path("/etc/fstab").read_bytes()


def test_a_service_that_makes_swap_at_boot_is_masked(node):
    node.systemd.swaps["zramswap.service"] = ("enabled", "")
    node.systemd.swaps["dphys-swapfile.service"] = ("disabled", "")
    settings = {setting.name: setting for setting in wanted_kernel(profile(), node)}
    units = settings["swap units"]
    assert units.read() == "dev-sdb1.swap zramswap.service"
    units.write()
    assert node.asked("systemctl", "stop", "zramswap.service") == 1 and units.read() == "none"


def test_a_file_that_sets_a_key_otherwise_at_boot_is_named(node):
    node.put("/etc/sysctl.d/99-sysctl.conf", "# vm.swappiness = 1\n-vm/swappiness=60\n")
    node.put("/usr/lib/sysctl.d/10-early.conf", "vm.swappiness = 30\n")
    node.put("/usr/lib/sysctl.d/99-hidden.conf", "net.ipv4.tcp_rmem = 1 2 3\n")
    node.put("/etc/sysctl.d/99-hidden.conf", "")
    problems = run(node).problems
    assert len(problems) == 1
    assert "vm.swappiness at boot" in problems[0] and "60 (from /etc/sysctl.d/99-sysctl.conf)" in problems[0]
    node.put("/etc/sysctl.d/99-zz.conf", "vm.swappiness = 1\n")
    assert not run(node, check=True).problems


def test_a_value_that_the_kernel_does_not_keep_is_told(node, monkeypatch):
    monkeypatch.setattr(node, "poke", lambda path, text: None)
    report = run(node, profile(sysctl={"vm.swappiness": 1}))
    assert any(
        "vm.swappiness" in line and "was set and reads 60 afterwards" in line for line in report.problems
    )


def test_update_grub_that_fails_is_one_line(node):
    node.programs["update-grub"] = lambda _: said(
        err="grub-probe: error: cannot find a device for /.", status=1
    )
    problems = run(node).problems
    assert any(
        line.startswith("update-grub: update-grub: grub-probe: error: cannot find") for line in problems
    )
    assert not node.exists("/etc/default/grub.d/60-nodegate.cfg"), "the file of before is put back"


def test_words_that_a_later_file_drops_are_told(node):
    node.programs["update-grub"] = lambda _: said()
    problems = run(node).problems
    assert any(
        line.startswith(
            "kernel argument mitigations=off (host.kernel_args): was set and reads absent afterwards"
        )
        and "60-nodegate.cfg" in line
        for line in problems
    )


def test_another_boot_loader_is_one_line_and_nothing_is_written(node):
    del node.programs["update-grub"]
    report = run(node)
    assert report.problems[0].startswith(
        "kernel argument mitigations=off (host.kernel_args): is absent, must be"
    )
    assert "does not boot by GRUB" in report.problems[0]
    assert node.text("/proc/sys/vm/swappiness") == "60\n"


def test_words_that_the_kernel_has_need_no_boot_loader(node):
    del node.programs["update-grub"]
    node.put("/proc/cmdline", "mitigations=off numa_balancing=disable iommu=pt\n")
    node.put("/sys/kernel/iommu_groups/0/type", "identity\n")
    report = run(node)
    assert not any("kernel argument" in line or "IOMMU" in line for line in report.problems)


def test_an_iommu_that_the_firmware_keeps_off_is_told_after_the_reboot(mounting):
    node = mounting
    run(node)
    node.reboot()
    node.remove("/sys/kernel/iommu_groups/0/type")
    node.path("/sys/kernel/iommu_groups/0").rmdir()
    problems = run(node, settled=True).problems
    assert problems == [
        "IOMMU (host.iommu): still off after the reboot, pt is staged; switch VT-d, AMD-Vi or SMMU in the"
        " BIOS (role bios), then reboot"
    ]


def test_no_argument_switches_the_iommu_of_an_arm_cpu_off(node):
    node.put("/proc/cpuinfo", "CPU implementer : 0x41\n")
    problems = run(node, profile(iommu="off")).problems
    assert problems and "cannot be had by a kernel argument" in problems[0]


def test_modprobe_that_is_missing_or_fails_is_one_line(node):
    del node.programs["modprobe"]
    assert any("modprobe: is not installed" in line for line in run(node).problems)
    node.programs["modprobe"] = lambda _: said(err="modprobe: FATAL: Module ib_umad not found.", status=1)
    assert any(
        "module ib_umad (host.modules): modprobe ib_umad: modprobe: FATAL" in p for p in run(node).problems
    )


def test_an_unused_module_is_unloaded_and_a_built_in_one_refused(node):
    node.put("/sys/module/nouveau/refcnt", "0\n")
    gone = []
    node.programs["modprobe"] = lambda argv: gone.append(argv) or said()
    run(node)
    assert ["-r", "nouveau"] in gone
    node.put("/lib/modules/6.8/modules.builtin", "kernel/drivers/gpu/drm/ast/ast.ko\n")
    problems = run(node, profile(modules_absent=["ast"])).problems
    assert any("ast is built into this kernel" in line for line in problems)


def test_fewer_huge_pages_than_asked_for_wait_for_the_boot_unit(mounting, monkeypatch):
    node = mounting
    poke = node.poke

    def scarce(path, text):
        poke(path, "700" if path.endswith("nr_hugepages") else text)

    monkeypatch.setattr(node, "poke", scarce)
    report = run(node)
    assert not report.problems and "huge pages of 2048 kB = 1024" in report.pending
    node.reboot()
    assert "memory is too small or in pieces" in run(node, settled=True).problems[0]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hugepages": {"4096": 1}}, "no huge pages of 4096 kB (it has 2048kB)"),
        ({"cpu_governor": "schedutil"}, "the CPUs offer performance, powersave, not schedutil"),
        (
            {"services": {"no-such.service": "active"}},
            "there is no such unit on this node; install its package",
        ),
        ({"mounts": [{"path": "/data"}]}, "/etc/fstab does not have it: give its fs_type and source"),
    ],
)
def test_what_cannot_be_is_one_line(node, changes, line):
    assert any(line in problem for problem in run(node, profile(**changes)).problems)


def test_a_unit_that_does_not_start_is_one_line(node):
    node.systemd.refused["irqbalance.service"] = "Job for irqbalance.service failed."
    assert any("Job for irqbalance.service failed." in line for line in run(node).problems)


def test_a_node_without_swap_units_is_no_error(node):
    node.systemd.swaps = {}
    assert not run(node, profile(mounts=[])).problems


def test_a_mount_that_does_not_answer_stops_the_role(node):
    node.put("/proc/self/mounts", "store:/models /models nfs4 ro 0 0\n")

    def hang(_):
        raise HostError("stat /models/ok: gave no answer within 10 s; look at the kernel log")

    node.programs["stat"] = hang
    report = run(node)
    assert any("gave no answer" in line for line in report.problems)
    assert node.text("/proc/sys/vm/swappiness") == "60\n"


def test_units_are_asked_for_in_one_call_a_look(mounting):
    node = mounting
    run(node)
    node.calls.clear()
    assert not run(node).changed
    assert node.asked("systemctl", "show", "--property=LoadState,ActiveState,UnitFileState") == 1


def test_the_boot_unit_sets_again_what_a_reboot_forgets(mounting):
    node = mounting
    run(node)
    names = [setting.name for batch in batches(node, part_of(profile())) for setting in batch]
    assert names == [
        "vm.swappiness", "net.ipv4.tcp_rmem", "net.ipv4.conf.*.arp_ignore", "huge pages of 2048 kB",
        "transparent huge pages", "CPU governor", "PCIe power saving policy", "PCIe access control (ACS)",
    ]  # fmt: skip
    node.put("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
    reports = [settle(batch) for batch in batches(node, part_of(profile()))]
    assert [r.changed for r in reports].count(True) == 1 and not any(r.problems for r in reports)
