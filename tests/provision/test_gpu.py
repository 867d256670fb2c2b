"""Role gpu: packages as one set, driver and services, each GPU's settings, with nvidia-smi as it answers."""

import copy

import pytest
from apply_host import ApplyHost, said
from nodegate_apply.gpu import batches, gpu_groups, part_of, wanted_gpu
from nodegate_apply.gpu_smi import parse
from nodegate_apply.host import HostError
from nodegate_apply.packages import installed
from nodegate_apply.setting import settle

from agent.profile_loader import profile_from_dict

VERSION = "580.159.04"
PACKAGES = {"nvidia-driver-580-server": f"{VERSION}-0ubuntu1", "nvidia-fabricmanager": f"{VERSION}-0ubuntu1"}
DATA = {
    "driver_version": VERSION,
    "gpus": {"count": 2, "power_limit_w": 600, "packages": PACKAGES},
    "nvlink": {"links_per_gpu": 0, "fabric": True},
    "fabric": {"kind": "none"},
    "host": {"modules": ["nvidia_peermem", "ib_umad"], "services": {"nvidia-dcgm.service": "inactive"}},
}
#: As read from an H200 with driver 580.159.04, another address for the second.
RECORDED = (
    "0, GPU-f565c51d-e9e8-3bce-7cac-9aff6fc9b6a6, 00000000:00:06.0, NVIDIA H200, 700.00, 700.00, 700.00,"
    " 200.00, 700.00, Enabled, Enabled, Enabled, Disabled, Disabled\n"
)
#: As public reports show a GB10.
GB10 = (
    "0, GPU-11111111-e9e8-3bce-7cac-9aff6fc9b6a6, 0000000F:01:00.0, NVIDIA GB10, [N/A], [N/A], [N/A], [N/A],"
    " [N/A], Disabled, [N/A], [N/A], [N/A], [N/A]\n"
)
EXEC = "{{ path=/usr/bin/nvidia-persistenced ; argv[]={} ; ignore_errors=no ; start_time=[n/a] ; pid=0 }}"


def profile(driver=VERSION, **gpus):
    """The parts that the role is given."""
    data = copy.deepcopy(DATA) | {"driver_version": driver}
    data["gpus"] |= gpus
    return profile_from_dict(data).profile.model_dump(mode="json")


def stanza(name, version, hold=False):
    return f"Package: {name}\nStatus: {'hold' if hold else 'install'} ok installed\nVersion: {version}\n\n"


class Node(ApplyHost):
    """Two H200 behind NVSwitches, the driver installed and loaded, its settings the driver's own."""

    def __init__(self, root):
        super().__init__(root)
        self.gpus = [dict(cells) for cells in (cells_of(0, "17"), cells_of(1, "05"))]
        self.offers = dict(PACKAGES)
        self.module = VERSION
        self.put("/sys/module/nvidia/version", f"{VERSION}\n")
        for name in ("nvidia", "nvidia_uvm"):
            self.put(f"/sys/module/{name}/initstate", "live\n")
        self.put("/var/lib/dpkg/status", "".join(stanza(name, version) for name, version in PACKAGES.items()))
        for name in ("nvidia-persistenced.service", "nvidia-fabricmanager.service"):
            self.systemd.add(name)
        argv = "/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose"
        self.systemd.exec_start["nvidia-persistenced.service"] = EXEC.format(argv)
        self.programs |= {
            "nvidia-smi": self.smi, "modinfo": lambda _: said(f"{self.module}\n"), "modprobe": self.modprobe,
            "apt-cache": self.madison, "env": self.apt, "apt-mark": self.hold,
        }  # fmt: skip

    def write(self, path, text, *more):
        super().write(path, text, *more)
        if "nvidia-persistenced.service.d" in path:
            argv = text.splitlines()[-1].removeprefix("ExecStart=")
            self.systemd.exec_start["nvidia-persistenced.service"] = EXEC.format(argv)

    def smi(self, argv):
        if self.module != self.text("/sys/module/nvidia/version").strip():
            return said("Failed to initialize NVML: Driver/library version mismatch\n", 18)
        if argv[0] != "-i":
            return said("".join(", ".join(gpu.values()) + "\n" for gpu in self.gpus))
        gpu = next(gpu for gpu in self.gpus if gpu["uuid"] == argv[1])
        what, value = argv[2], argv[3]
        if what == "-pl":
            gpu["limit"] = gpu["enforced"] = f"{float(value):.2f}"
        elif what == "-pm":
            gpu["persistence"] = "Enabled"
        elif what == "-e":
            gpu["ecc_next"] = "Enabled"
        elif what == "-mig":
            gpu["mig"] = gpu["mig_next"] = "Disabled"
        return said("All done.\n")

    def modprobe(self, argv):
        self.put(f"/sys/module/{argv[-1]}/initstate", "live\n")
        if argv[-1] == "nvidia":
            self.put("/sys/module/nvidia/version", f"{self.module}\n")
        return said()

    def madison(self, argv):
        return said("".join(f" {n} | {v} | http://archive amd64 Packages\n" for n, v in self.offers.items()))

    def apt(self, argv):
        if "install" in argv:
            rows = [
                word.split("=", 1) for word in argv[argv.index("install") + 1 :] if not word.startswith("-")
            ]
            have = {name: p.version for name, p in installed(self.read("/var/lib/dpkg/status") or "").items()}
            self.put("/var/lib/dpkg/status", "".join(stanza(n, v) for n, v in (have | dict(rows)).items()))
            self.module = rows[0][1].split("-")[0]
            for name in ("nvidia-persistenced.service", "nvidia-fabricmanager.service"):
                if name not in self.systemd.units:
                    self.systemd.add(name)
            self.programs["nvidia-smi"] = self.smi
        return said()

    def hold(self, argv):
        text = self.text("/var/lib/dpkg/status")
        for name in argv[1:]:
            text = text.replace(f"Package: {name}\nStatus: install", f"Package: {name}\nStatus: hold")
        self.put("/var/lib/dpkg/status", text)
        return said()

    def reboot(self):
        """The next boot loads what is installed; limits and persistence are gone, staged modes come."""
        self.put("/sys/module/nvidia/version", f"{self.module}\n")
        self.put("/sys/module/nvidia_uvm/initstate", "live\n")
        for gpu in self.gpus:
            gpu |= {
                "limit": "700.00",
                "enforced": "700.00",
                "persistence": "Disabled",
                "ecc": gpu["ecc_next"],
            }


def cells_of(index, bus):
    """One H200 as the driver leaves it."""
    cells = [cell.strip() for cell in RECORDED.split(",")]
    names = [
        "index", "uuid", "bus", "name", "limit", "enforced", "default", "least", "most", "persistence", "ecc",
        "ecc_next", "mig", "mig_next",
    ]  # fmt: skip
    gpu = dict(zip(names, cells, strict=True))
    uuid = gpu["uuid"][:-1] + str(index)
    return gpu | {"index": str(index), "uuid": uuid, "bus": f"00000000:{bus}:00.0", "persistence": "Disabled"}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def run(node, prof=None, *, check=False, settled=False):
    wanted = wanted_gpu(prof or profile(), node, check=check)
    return settle(wanted, check=check, settled=settled, groups=gpu_groups(node))


def smi_calls(node):
    return [call[3:] for call in node.calls if call[:2] == ["nvidia-smi", "-i"]]


def test_a_node_is_made_so_and_the_second_run_changes_nothing(node):
    looked = run(node, check=True)
    assert looked.changed and not smi_calls(node) and not node.asked("env")
    report = run(node)
    assert report.problems == [] and report.drift == looked.drift and not report.pending
    assert {gpu["limit"] for gpu in node.gpus} == {"600.00"}
    assert {gpu["persistence"] for gpu in node.gpus} == {"Enabled"}
    assert "--no-persistence-mode" not in node.text(
        "/etc/systemd/system/nvidia-persistenced.service.d/60-nodegate.conf"
    )
    assert node.text("/etc/modules-load.d/nodegate-gpu.conf").splitlines()[1:] == [
        "nvidia", "nvidia_uvm", "nvidia_peermem",
    ]  # fmt: skip
    assert node.systemd.units["nvidia-fabricmanager.service"][1:] == ["active", "enabled"]
    node.calls.clear()
    again = run(node)
    assert not again.changed and not again.problems
    assert node.asked("nvidia-smi") == 1 and node.asked("modinfo") <= 4, "one question a look"


def test_slots_are_in_pci_bus_order_and_limits_go_by_uuid(node):
    report = run(node, check=True)
    assert "gpu0 power limit" in [one["name"] for one in report.drift]
    node.gpus[0]["limit"] = node.gpus[0]["enforced"] = "600.00"  # bus 17: the second slot
    names = [one["name"] for one in run(node, check=True).drift]
    assert "gpu0 power limit" in names and "gpu1 power limit" not in names
    run(node)
    assert node.asked("nvidia-smi", "-i", node.gpus[1]["uuid"], "-pl", "600") == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("power_limit_w", 500), ("has_power_limit", False), ("persistence", False), ("ecc", False),
        ("mig_off", False), ("count", 1), ("packages", {"nvidia-driver-580-server": f"{VERSION}-0ubuntu2"}),
    ],
)  # fmt: skip
def test_a_changed_field_changes_what_is_wanted(node, field, value):
    def wishes(prof):
        return [(s.name, s.want) for s in wanted_gpu(prof, node)]

    assert wishes(profile()) != wishes(profile(**{field: value}))


def test_a_lowered_limit_is_put_back_to_the_devices_default(node):
    run(node)
    report = run(node, profile(power_limit_w=None))
    assert not report.problems and {gpu["limit"] for gpu in node.gpus} == {"700.00"}
    assert report.drift[0]["before"] == "600 W (default 700 W)" and report.drift[0]["after"] == "the default"


def test_a_limit_out_of_range_is_refused_before_anything_is_written(node):
    report = run(node, profile(power_limit_w=900))
    assert report.problems[0] == (
        "gpu0 power limit (gpus.power_limit_w): 900 W cannot be: this GPU takes 200 to 700 W; correct"
        " gpus.power_limit_w in the profile"
    )
    assert not smi_calls(node) and not node.exists("/etc/modules-load.d/nodegate-gpu.conf")


def test_a_cap_from_outside_is_named(node):
    run(node)
    node.smi_before = node.programs["nvidia-smi"]

    def capped(argv):
        node.smi_before(argv)
        node.gpus[0]["enforced"] = "450.00"
        return node.smi_before(argv)

    node.programs["nvidia-smi"] = capped
    problems = run(node).problems
    assert len(problems) == 1
    assert (
        "reads 600 W, enforced 450 W afterwards, not 600 W; a lower cap was set outside the driver"
        in problems[0]
    )


def test_a_mode_waits_for_the_reboot_and_is_an_error_after_it(node):
    for gpu in node.gpus:
        gpu |= {"ecc": "Disabled", "ecc_next": "Disabled"}
    report = run(node)
    assert not report.problems and report.pending == ["gpu0 ECC mode = Enabled", "gpu1 ECC mode = Enabled"]
    again = run(node)
    assert not again.changed and len(again.pending) == 2
    assert "still Disabled after the reboot" in run(node, settled=True).problems[0]
    node.reboot()
    assert not run(node, settled=True).problems


def test_mig_is_switched_off(node):
    node.gpus[1] |= {"mig": "Enabled", "mig_next": "Enabled"}
    assert not run(node).problems and node.gpus[1]["mig"] == "Disabled"


def test_a_driver_of_another_version_waits_for_the_reboot_with_everything_that_needs_it(node):
    run(node)
    newer = dict.fromkeys(PACKAGES, "590.10.01-0ubuntu1")
    node.offers = newer
    prof = profile("590.10.01", packages=newer)
    report = run(node, prof)
    assert report.problems == [] and "NVIDIA driver = 590.10.01" in report.pending
    assert "gpu0 power limit = 600 W" in report.pending
    installs = [call for call in node.calls if "install" in call]
    assert len(installs) == 1 and installs[0][-2:] == [f"{name}=590.10.01-0ubuntu1" for name in PACKAGES]
    assert "--allow-downgrades=no" in installs[0] and "DPkg::Lock::Timeout=180" in installs[0]
    again = run(node, prof)
    assert not again.changed and not again.problems and again.pending
    node.reboot()
    assert not run(node, prof, settled=True).problems


def test_a_bare_node_gets_driver_services_and_settings_in_one_run(node):
    for name in ("nvidia", "nvidia_uvm"):
        node.remove(f"/sys/module/{name}/initstate")
        node.remove(f"/sys/module/{name}/version")
        node.path(f"/sys/module/{name}").rmdir()
    node.put("/var/lib/dpkg/status", stanza("bash", "5"))
    node.systemd.units.clear()
    del node.programs["nvidia-smi"]
    node.programs["modinfo"] = lambda _: (
        said(f"{node.module}\n") if "nvidia-smi" in node.programs else said(err="not found", status=1)
    )
    report = run(node)
    assert report.problems == [] and report.pending == []
    assert {gpu["limit"] for gpu in node.gpus} == {"600.00"}
    assert not run(node).changed


def test_a_version_that_no_source_has_is_one_line_before_anything_changes(node):
    lacking = {"nvidia-driver-580-server": f"{VERSION}-0ubuntu9"}
    report = run(node, profile(packages=lacking))
    assert report.problems == [
        "package nvidia-driver-580-server (gpus.packages.nvidia-driver-580-server): no package source has"
        f" nvidia-driver-580-server {VERSION}-0ubuntu9 (they have {VERSION}-0ubuntu1); add the source, or"
        " correct gpus.packages in the profile"
    ]
    assert [call[-1] for call in node.calls if call[0] == "env"] == ["update"]
    node.calls.clear()
    assert run(node, profile(packages=lacking), check=True).problems and not node.asked("env")


@pytest.mark.parametrize(
    ("err", "line"),
    [
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 12 (apt-get)",
            "Could not get lock",
        ),
        (
            "E: Packages were downgraded and -y was used without --allow-downgrades.",
            "Packages were downgraded",
        ),
    ],
)
def test_apt_that_fails_is_one_line(node, err, line):
    node.put("/var/lib/dpkg/status", stanza("nvidia-driver-580-server", "570.1-1"))
    node.programs["env"] = lambda _: said(err=err, status=100)
    problems = run(node).problems
    assert len(problems) == 1 and line in problems[0] and "nothing was written" in problems[0]


def test_nvidia_smi_that_hangs_hangs_once(node):
    asked = []

    def hang(argv):
        asked.append(argv)
        raise HostError("nvidia-smi: gave no answer within 90 s; look at the kernel log")

    node.programs["nvidia-smi"] = hang
    report = run(node)
    assert len(asked) == 1 and "gave no answer within 90 s" in report.problems[0]


def test_words_of_nvidia_smi_beside_the_rows():
    warning = "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n"
    assert parse(RECORDED + warning) == parse(RECORDED)
    with pytest.raises(HostError, match="not 14 values"):
        parse("No devices were found\n")


@pytest.mark.parametrize("key", ["limit", "persistence", "mig"])
def test_an_error_in_the_place_of_a_value_is_no_value(node, key):
    name = next(name for name in node.gpus[1] if key in name)
    node.gpus[0][name] = "[GPU requires reset]"
    problems = run(node).problems
    assert any("[GPU requires reset]" in line and "has to be reset" in line for line in problems)
    assert not any("-pl" in call for call in node.calls)


def test_a_gpu_that_is_missing_is_said(node):
    del node.gpus[1]
    assert "nvidia-smi lists 1 GPUs, the profile has 2" in run(node).problems[0]


def test_a_gb10_has_no_limits_and_no_modes(node):
    assert parse(GB10)[0]["power.limit"] == "[N/A]"
    node.programs["nvidia-smi"] = lambda _: said(GB10)
    plain = {"count": 1, "has_power_limit": False, "ecc": False, "persistence": False, "power_limit_w": None}
    prof = profile(**plain, packages={}) | {"nvlink": profile()["nvlink"] | {"fabric": False}}
    assert run(node, prof).problems == []
    problems = run(node, profile(**plain | {"has_power_limit": True, "ecc": True}, packages={})).problems
    assert any("gpu0 has no ECC mode ([N/A])" in line for line in problems)
    assert any("write `gpus: {has_power_limit: false}`" in line for line in problems)


def test_a_driver_that_nothing_brings_is_refused_first(node):
    prof = profile("590.10.01", packages={})
    report = run(node, prof)
    assert report.problems[0].startswith(
        "NVIDIA driver (driver_version): driver 580.159.04 is installed, not 590"
    )
    assert not smi_calls(node)


def test_a_missing_service_says_where_it_comes_from(node):
    del node.systemd.units["nvidia-fabricmanager.service"]
    problems = run(node).problems
    assert "list its package under gpus.packages" in problems[0] and "inactive" in problems[0]


def test_the_boot_unit_sets_again_what_the_driver_forgets(node):
    run(node)
    node.reboot()
    reports = [settle(batch) for batch in batches(node, part_of(profile()))]
    assert not any(report.problems for report in reports)
    assert {gpu["limit"] for gpu in node.gpus} == {"600.00"}
    assert {gpu["persistence"] for gpu in node.gpus} == {"Enabled"}


def test_dpkg_status_as_it_is():
    text = (
        "Package: nvlsm\nStatus: hold ok installed\nPriority: optional\nVersion: 2025.03-1\n"
        "Description: x\n more: y\n"
        "\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    found = installed(text)
    assert found["nvlsm"].version == "2025.03-1" and found["nvlsm"].held and "gone" not in found
