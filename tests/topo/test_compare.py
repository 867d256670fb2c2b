"""A file that does not fit: what is said of it, and of which card."""

from __future__ import annotations

import pytest
from topo_nodes import machine, topo_node, topo_profile

from agent.topo.compare import compare
from agent.topo.read_file import parse
from agent.topo.verify import bus_ids
from agent.topo.write_file import render


def _found(*changes: tuple[str, str]) -> list[str]:
    node, profile = topo_node("h200-roce"), topo_profile("h200-roce")
    text = render(machine(node, profile))
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file = parse(text, "t.xml")
    return [str(each) for each in compare(machine(node, profile, *bus_ids(file)), file)]


GPU0 = 'busid="0000:1b:00.0"'


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            [(GPU0, 'busid="0000:1c:00.0"')],
            [
                "gpu0: 0000:1b:00.0 is not in the file",
                "0000:1c:00.0: the GPU of the file is not on this machine: NCCL drops its branch",
            ],
        ),
        (
            [('busid="0000:18:00.0"', 'busid="0000:19:00.0"')],
            [
                "mlx5_0: 0000:18:00.0 is not in the file",
                "0000:19:00.0: the NIC of the file is not on this machine: NCCL drops its branch",
            ],
        ),
        (
            [('busid="0000:18:00.0"', 'busid="XX"'), ('busid="0000:40:00.0"', 'busid="0000:18:00.0"'),
             ('busid="XX"', 'busid="0000:40:00.0"')],
            [
                "mlx5_0: behind 0000:16:00.0 of NUMA node 0 on this machine, behind 0000:3e:00.0 of NUMA",
                "mlx5_1: behind 0000:3e:00.0 of NUMA node 0 on this machine, behind 0000:16:00.0 of NUMA",
            ],
        ),
        ([('affinity="000000ff', 'affinity="000000fe')], ["NUMA node 0: its CPUs are 000000ff,ffffffff,"]),
        ([('numaid="0"', 'numaid="0" arch="x86_64"')], ["NUMA node 0: arch not told, in the file x86_64"]),
        (
            [(f'{GPU0} class="0x030200"', f'{GPU0} class="0x0604"')],
            ["gpu0: class 0x030200, in the file 0x0604"],
        ),
        ([('count="18"', 'count="17"')], [f"gpu{slot}: 18 NVLinks are up, in the file" for slot in range(8)]),
        ([('device="0xc030"', 'device="0xc040"')], ["0000:16:00.0: device 0xc030, in the file 0xc040"]),
    ],
    ids=["gpu gone", "nic gone", "nics swapped", "cpus", "processor", "class", "nvlinks", "device"],
)  # fmt: skip
def test_what_is_said(changes: list[tuple[str, str]], told: list[str]) -> None:
    found = _found(*changes)
    assert len(found) >= len(told)
    for line, want in zip(found, told, strict=False):
        assert line.startswith(want)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('link_width="16"', 'link_width="8"', "its link has 16 lanes, in the file 8"),
        ("32.0 GT/s PCIe", "16.0 GT/s PCIe", "its link can do 32.0 GT/s PCIe, in the file 16.0 GT/s PCIe"),
        ("32.0 GT/s PCIe", "32", "NCCL does not know the link_speed '32' and takes 8 GT/s"),
        ("32.0 GT/s PCIe", "128.0 GT/s PCIe", "NCCL does not know the link_speed"),
    ],
)
def test_a_link_must_be_what_the_device_can_do(old: str, new: str, words: str) -> None:
    assert any(words in line for line in _found((old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('link_width="16"', 'link_width="0"'),
        ("32.0 GT/s PCIe", "32 GT/s"),
        (' link_width="16"', ""),
        (' link_speed="32.0 GT/s PCIe"', ""),
        (' subsystem_vendor="0x10de"', ""),
        ('<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>', ""),
        (
            '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>',
            '<nvlink target="0000:04:00.0" count="9" tclass="0x068000"/>'
            '<nvlink target="0000:05:00.0" count="9" tclass="0x068000"/>',
        ),
        ("<gpu>", '<gpu dev="0" sm="90" rank="0" gdr="1">'),
        ("SIMULATED", "simulated"),
    ],
)
def test_what_nccl_fills_in_or_takes_for_the_same_is_no_difference(old: str, new: str) -> None:
    assert _found((old, new)) == []


def test_without_the_stamps_it_is_compared_by_bus_id_alone() -> None:
    node, profile = topo_node("h200-roce"), topo_profile("h200-roce")
    here = machine(node, profile)
    bare = "\n".join(line for line in render(here).splitlines() if "<!--" not in line)
    assert compare(here, parse(bare, "t.xml")) == []


def test_a_file_of_a_captured_node_is_none_of_a_real_machine() -> None:
    text = render(machine(topo_node("h200-roce"), topo_profile("h200-roce")))
    real = parse(text.replace("SIMULATED", "-"), "t.xml")
    assert [str(each) for each in compare(real, parse(text, "t.xml"))] == [
        "file: it was written from a captured node, not from a machine"
    ]


def test_a_card_that_the_file_does_not_know_is_told() -> None:
    node, profile = topo_node("h200-roce"), topo_profile("h200-roce")
    file = parse(render(machine(node, profile)), "t.xml")
    new = "GPU-00000000-0000-0000-0000-000000000001"
    old = node.data["nvml"]["gpus"][3]["identity"]["uuid"]
    node.set("nvml.gpus.3.identity.uuid", new)
    pins = {**profile.gpus.pins}
    if 3 in pins:
        pins[3] = pins[3].model_copy(update={"uuid": new})
    gpus = profile.gpus.model_copy(update={"pins": pins})
    found = compare(machine(node, profile.model_copy(update={"gpus": gpus})), file)
    assert [str(each) for each in found] == [
        f"gpu3: {old}, at 0000:61:00.0 in the file, is not here",
        f"gpu3: the file does not know {new}",
    ]
