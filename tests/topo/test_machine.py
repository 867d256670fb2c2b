"""The machine in NCCL's terms: replay nodes and the two real H200s, written, read back and compared."""

from __future__ import annotations

import pytest
from topo_nodes import CAPTURE, PCI, machine, topo_node, topo_profile

from agent.checks.pci_paths import PciPlace
from agent.errors import ParseError, SourceError
from agent.topo.compare import compare
from agent.topo.cpu import CPUINFO, cpu_kind, mask_of
from agent.topo.facts import record
from agent.topo.machine import link, seen_by_nccl
from agent.topo.model import placed
from agent.topo.read_file import parse
from agent.topo.snippet import snippet
from agent.topo.write_file import render

NODES = ("h200-roce", "h200-ib", "h20-roce", "b300-roce", "b300-x16", "gb10", "h200-x2-live")
AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\nprocessor\t: 1\n"


def _captured(name: str) -> str:
    return (CAPTURE / name).read_text(encoding="ascii")


@pytest.mark.parametrize("name", NODES)
def test_a_file_written_from_a_node_fits_it(name: str) -> None:
    node, profile = topo_node(name), topo_profile(name)
    here = machine(node, profile)
    again = parse(render(here), "t.xml")
    assert again == here
    assert compare(here, again) == []
    gpus = [each for each in placed(here) if each.pci.is_gpu]
    assert len(gpus) == profile.gpus.count
    cards = {port.device for port in profile.fabric.ports}
    assert {stamp.subject for stamp in here.stamps if stamp.uuid is None} >= cards


def test_an_h200_board_has_a_switch_for_each_gpu_and_its_nic() -> None:
    here = machine(topo_node("h200-roce"), topo_profile("h200-roce"))
    assert [cpu.numaid for cpu in here.cpus] == [0, 1]
    assert [len(cpu.pcis) for cpu in here.cpus] == [4, 4]
    for switch in (pci for cpu in here.cpus for pci in cpu.pcis):
        nic, gpu = switch.pcis
        assert nic.is_nic and gpu.is_gpu and not switch.is_gpu
        assert gpu.gpus[0].nvlinks[0].count == 18
    assert here.cpus[0].affinity == mask_of("0-55,112-167", "x")


def test_what_the_real_machine_wrote_is_what_its_capture_gives() -> None:
    node, profile = topo_node("h200-x2-live"), topo_profile("h200-x2-live")
    node.set(f"files:{CPUINFO}", _captured("cpuinfo.txt"))
    here = machine(node, profile)
    assert render(here).splitlines()[1:] == _captured("topo.xml").splitlines()
    told = snippet(record(node.sources, profile), "node-835f79")
    assert told == _captured("record.yaml")


@pytest.mark.parametrize("dump", ["dump-without-file.xml", "dump-with-file.xml", "dump-wrong-busid.xml"])
def test_ncclx_own_dump_agrees_with_the_machine(dump: str) -> None:
    """After a file with wrong bus ids too: NCCL has dropped them and looked for itself."""
    node, profile = topo_node("h200-x2-live"), topo_profile("h200-x2-live")
    node.set(f"files:{CPUINFO}", _captured("cpuinfo.txt"))
    assert compare(machine(node, profile), parse(_captured(dump), dump)) == []


def test_nccl_took_our_file_as_it_was() -> None:
    """All that we wrote stands in the dump; what is more there only NCCL knows."""
    ours, dump = parse(_captured("topo.xml"), "ours"), parse(_captured("dump-with-file.xml"), "dump")
    assert [cpu.kind for cpu in ours.cpus] == [cpu.kind for cpu in dump.cpus]
    for mine, its in zip(placed(ours), placed(dump), strict=True):
        assert (mine.pci.busid, mine.pci.pci_class, mine.pci.ids) == (
            its.pci.busid, its.pci.pci_class, its.pci.ids,
        )  # fmt: skip
        assert (mine.pci.link_speed, mine.pci.link_width) == (its.pci.link_speed, its.pci.link_width)
        assert mine.pci.gpus[0].nvlinks == its.pci.gpus[0].nvlinks
        assert dict(its.pci.gpus[0].more).keys() == {"dev", "sm", "rank", "gdr"}
    assert "Loading topology file topo.xml" in _captured("nccl-log-with-file.txt")
    assert "WARN" not in _captured("nccl-log-with-file.txt")


def test_nccl_believes_a_wrong_count_of_nvlinks() -> None:
    """It then ran at a tenth of the bandwidth (see the capture's README); the file is refused here."""
    node, profile = topo_node("h200-x2-live"), topo_profile("h200-x2-live")
    node.set(f"files:{CPUINFO}", _captured("cpuinfo.txt"))
    found = compare(machine(node, profile), parse(_captured("dump-one-nvlink.xml"), "dump"))
    assert [str(each) for each in found] == [
        "gpu0: 18 NVLinks are up, in the file 1",
        "gpu1: 18 NVLinks are up, in the file 1",
    ]


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        (("pci0000:00", "g"), ["g"]),
        (("pci0000:00", "root", "g"), ["g"]),
        (("pci0000:00", "root", "up", "down", "g"), ["up", "g"]),
        (("pci0000:00", "root", "up1", "down1", "up2", "down2", "g"), ["up1", "up2", "g"]),
    ],
)
def test_nccl_leaves_out_every_second_bridge(path: tuple[str, ...], seen: list[str]) -> None:
    assert seen_by_nccl(PciPlace("g", path, 0)) == seen


def test_a_link_is_as_good_as_its_worse_end() -> None:
    node = topo_node("h200-roce")
    gpu, port = "0000:1b:00.0", "0000:17:02.0"
    assert link(node.sources, gpu, port) == ("32.0 GT/s PCIe", 16)
    node.set(f"files:{PCI}/{port}/max_link_speed", "16.0 GT/s PCIe")
    node.set(f"files:{PCI}/{gpu}/max_link_width", "8")
    assert link(node.sources, gpu, port) == ("16.0 GT/s PCIe", 8)
    for gone in (None, "Unknown"):
        node.set(f"files:{PCI}/{port}/max_link_speed", gone)
        assert link(node.sources, gpu, port) == ("32.0 GT/s PCIe", 8)
    node.set(f"files:{PCI}/{gpu}/max_link_speed", "fast")
    node.set(f"files:{PCI}/{port}/max_link_speed", "16.0 GT/s PCIe")
    with pytest.raises(ParseError, match="no"):
        link(node.sources, gpu, port)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (AMD, {"arch": "x86_64", "vendor": "AuthenticAMD", "familyid": "175", "modelid": "17"}),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", {"arch": "arm64"}),
        ("processor\t: 0\nvendor_id\t: X\ncpu family\t: ?\nmodel\t: 1\n", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_the_kind_of_cpu_as_nccl_numbers_it(text: str | None, kind: dict[str, str]) -> None:
    node = topo_node("h200-roce")
    node.set(f"files:{CPUINFO}", text)
    assert dict(cpu_kind(node.sources)) == kind


@pytest.mark.parametrize("text", ["x", "1-", "-1", "5-3", "0-99999999", "1,,2"])
def test_a_garbled_list_of_cpus_is_no_mask(text: str) -> None:
    with pytest.raises(ParseError):
        mask_of(text, "cpulist")
    assert mask_of("", "cpulist") == 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"links:{PCI}/0000:1b:00.0", None),
        (f"links:{PCI}/0000:1b:00.0", "../../../devices/elsewhere"),
        (f"files:{PCI}/0000:16:00.0/numa_node", "garbage"),
        (f"files:{PCI}/0000:1b:00.0/max_link_width", "wide"),
        ("files:sys/devices/system/node/node0/cpulist", "all"),
        ("links:sys/class/infiniband/mlx5_3/device", None),
        ("nvml.gpus.3.identity.pci_bus_id", None),
        ("nvml.gpus.3.identity.error", "GPU_IS_LOST"),
        ("nvml.gpus.3.nvlink.states", {"error": "TIMEOUT"}),
    ],
)
def test_half_a_machine_is_no_topology(path: str, value: object) -> None:
    node = topo_node("h200-roce")
    node.set(path, value)
    with pytest.raises(SourceError):
        machine(node, topo_profile("h200-roce"))
