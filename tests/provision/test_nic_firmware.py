"""NIC firmware against flint's own words, on a host that is a dict. The texts are recorded ones, cut."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from nodegate_apply.host import Host, HostError, Output
from nodegate_apply.nic_firmware import Image, Tools, parse_query
from nodegate_apply.nic_firmware_apply import apply_nic_firmware

PSID = "MT_0000000228"
QUERY = """Image type:            FS4
FW Version:            20.35.1012
FW Version(Running):   20.34.1002
FW Release Date:       28.10.2022
Product Version:       20.35.1012
Rom Info:              type=UEFI version=14.28.15 cpu=AMD64,AARCH64
                       type=PXE version=3.6.804 cpu=AMD64
Description:           UID                GuidsNumber
Base GUID:             043f720300f04c46        8
Base MAC:              043f72f04c46            8
Image VSD:             N/A
Device VSD:            N/A
PSID:                  MT_0000000228
Security Attributes:   N/A
"""
IMAGE_QUERY = """Image type:            FS4
FW Version:            20.36.1012
FW Release Date:       28.10.2022
Product Version:       rel-20_36_1012
Description:           UID                GuidsNumber
Base GUID:             N/A                     4
Base MAC:              N/A                     4
PSID:                  MT_0000000228
Security Attributes:   N/A
Security Ver:          0
"""
VERIFIED = """
     FS4 failsafe image. Start address: 0x0. Chunk size 0x800000:

     /0x00000018-0x0000001f (0x000008)/ (HW_POINTERS) - OK

-I- FW image verification succeeded. Image is bootable.

"""
BURNED = """
    Current FW version on flash:  20.35.1012
    New FW version:               20.36.1012

FSMST_INITIALIZE -   OK
Writing Boot image component -   OK
-I- To load new FW run mlxfwreset or reboot machine.
"""


def test_what_flint_says_of_a_card_and_of_an_image() -> None:
    card = parse_query(QUERY, "flint q")
    assert (card.psid, card.version, card.running) == (PSID, "20.35.1012", "20.34.1002")
    assert card.identity == "043f720300f04c46"
    image = parse_query(IMAGE_QUERY, "flint q")
    assert (image.psid, image.version, image.running, image.identity) == (PSID, "20.36.1012", None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "gives no PSID"),
        ("-E- Cannot open Device: 0000:17:00.0. No such file or directory. MFE_CR_ERROR\n", "MFE_CR_ERROR"),
        ("PSID: MT_1\nFW Version(Running): 2.36.5000\n", "gives no FW Version"),
        ("PSID: MT_1\nFW Version: unknown\n", "which is none"),
    ],
)
def test_what_flint_may_say_instead(text: str, words: str) -> None:
    with pytest.raises(HostError, match=words):
        parse_query(text, "flint -d 0000:17:00.0 q")


class Node(Host):
    """Cards by PCI address: PSID, burned, running; images by path. SIMULATED tools with recorded words."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(str(tmp_path / "sys"))
        self.folder = tmp_path
        self.cards: dict[str, list[str]] = {}
        self.images: dict[str, tuple[str, str]] = {}
        self.ran: list[str] = []
        self.fail: dict[str, Callable[[], Output]] = {}
        self.tools = {"flint", "mlxfwreset"}

    def port(self, device: str, bdf: str, psid: str = PSID, version: str = "20.35.1012") -> dict[str, Any]:
        folder = self.folder / "sys/class/infiniband" / device / "device"
        folder.mkdir(parents=True)
        (folder / "uevent").write_text(f"DRIVER=mlx5_core\nPCI_SLOT_NAME={bdf}\n")
        (folder.parent / "fw_ver").write_text(f"{version}\n")
        self.cards.setdefault(f"{bdf[:-1]}0", [psid, version, version, f"guid{len(self.cards)}"])
        return {"device": device}

    def image(self, psid: str = PSID, version: str = "20.36.1012", **more: Any) -> Image:
        path = self.folder / f"{psid}.bin"
        path.write_bytes(psid.encode())
        self.images[str(path)] = (more.pop("inside_psid", psid), more.pop("inside_version", version))
        given = {
            "match": "exact",
            "sha256": hashlib.sha256(psid.encode()).hexdigest(),
            "path": str(path),
            **more,
        }
        return Image(psid, version, **given)

    def has(self, program: str) -> bool:
        return program in self.tools

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str = "") -> Output:
        words = " ".join(argv[1:])
        verb = argv[-1]
        self.ran.append(f"{argv[0]} {words}")
        if verb in self.fail:
            return self.fail[verb]()
        if "-d" not in argv:
            psid, version = self.images[argv[2]]
            if verb == "v":
                return Output(0, VERIFIED, "")
            return Output(0, IMAGE_QUERY.replace(PSID, psid).replace("20.36.1012", version), "")
        card = self.cards[argv[2]]
        if verb == "burn":
            card[1] = self.images[argv[4]][1]
            return Output(0, BURNED, "")
        if verb == "reset":
            card[2] = card[1]
            return Output(0, "-I- FW was loaded successfully.\n", "")
        text = (
            QUERY.replace(PSID, card[0]).replace("20.35.1012", card[1]).replace("043f720300f04c46", card[3])
        )
        running = f"FW Version(Running):   {card[2]}\n" if card[2] != card[1] else ""
        return Output(0, text.replace("FW Version(Running):   20.34.1002\n", running), "")

    def did(self, verb: str) -> list[str]:
        return [line for line in self.ran if line.split()[-1] == verb]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def hangs() -> Output:
    raise HostError("flint -d 0000:17:00.0 q: gave no answer within 60 s; look at the kernel log")


def test_it_is_burned_once_a_card_and_waits_for_a_reboot(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0"), node.port("mlx5_1", "0000:17:00.1")]
    ports.append(node.port("mlx5_2", "0000:4d:00.0"))
    images = [node.image()]
    look = apply_nic_firmware(node, ports, images, check=True)
    assert look["changed"] and len(look["drift"]) == 2 and not node.did("burn")
    assert look["drift"][0] == {
        "name": "0000:17:00.0 firmware",
        "field": f"fabric.nic.images.{PSID}",
        "before": "20.35.1012",
        "after": "20.36.1012",
    }
    done = apply_nic_firmware(node, ports, images)
    assert done["problems"] == [] and done["changed"] and len(node.did("burn")) == 2
    assert done["pending"] == ["0000:17:00.0 firmware = 20.36.1012", "0000:4d:00.0 firmware = 20.36.1012"]
    assert done["reboot_required"] and not node.did("reset")

    again = apply_nic_firmware(node, ports, images)
    assert (again["changed"], again["drift"], again["reboot_required"]) == (False, [], True)
    assert len(node.did("burn")) == 2
    for card in node.cards.values():
        card[2] = card[1]
    for device in ("mlx5_0", "mlx5_1", "mlx5_2"):
        (node.folder / "sys/class/infiniband" / device / "fw_ver").write_text("20.36.1012\n")
    last = apply_nic_firmware(node, ports, images, settled=True)
    assert (last["changed"], last["pending"], last["problems"]) == (False, [], [])


def test_a_reset_that_is_allowed_loads_it(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    (node.folder / "sys/class/infiniband/mlx5_0/fw_ver").unlink()
    done = apply_nic_firmware(node, ports, [node.image()], allow_reset=True)
    assert done["changed"] and done["pending"] == [] and done["problems"] == []
    assert node.did("reset") == ["mlxfwreset -d 0000:17:00.0 --yes reset"]
    assert apply_nic_firmware(node, ports, [node.image()], allow_reset=True)["changed"] is False


def test_a_reset_that_the_platform_refuses_leaves_it_to_the_reboot(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    node.fail["reset"] = lambda: Output(1, "", "-E- Failed to reset: reset level 3 is not supported")
    done = apply_nic_firmware(node, ports, [node.image()], allow_reset=True)
    assert done["problems"] == [] and done["reboot_required"]
    assert "the next reboot loads it" in done["msg"] and "not supported" in done["msg"]


def test_what_still_waits_after_the_reboot_is_a_failure(node: Node) -> None:
    ports, images = [node.port("mlx5_0", "0000:17:00.0")], [node.image()]
    apply_nic_firmware(node, ports, images)
    (line,) = apply_nic_firmware(node, ports, images, settled=True)["problems"]
    assert "still 20.35.1012 after the reboot" in line


def test_a_card_on_two_slots_is_one_card(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0"), node.port("mlx5_1", "0000:98:00.0")]
    node.cards["0000:98:00.0"][3] = node.cards["0000:17:00.0"][3]
    assert len(apply_nic_firmware(node, ports, [node.image()], check=True)["drift"]) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sha256": "1" * 64}, "SHA-256 is"),
        ({"inside_psid": "MT_0000000999"}, "is for PSID MT_0000000999, not MT_0000000228"),
        ({"inside_version": "20.99.1"}, "is version 20.99.1"),
    ],
)
def test_a_wrong_image_stops_before_any_card(node: Node, more: dict[str, Any], words: str) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0"), node.port("mlx5_1", "0000:4d:00.0", "MT_0000000838")]
    images = [node.image("MT_0000000838"), node.image(**more)]
    found = apply_nic_firmware(node, ports, images, allow_reset=True)
    (line,) = found["problems"]
    assert words in line and "nothing was burned" in line and "\n" not in line
    assert not node.did("burn") and not node.did("reset") and not found["changed"]


def test_an_image_that_does_not_verify_is_not_burned(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    node.fail["v"] = lambda: Output(1, "", "-E- FS4 failsafe image verification failed.")
    (line,) = apply_nic_firmware(node, ports, [node.image()])["problems"]
    assert "verification failed" in line and not node.did("burn")


def test_nothing_older_is_burned_unless_asked(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0", version="20.40.1000")]
    (line,) = apply_nic_firmware(node, ports, [node.image()])["problems"]
    assert "20.40.1000 is burned, which is newer; nothing is downgraded" in line and not node.did("burn")
    assert apply_nic_firmware(node, ports, [node.image(match="least")])["problems"] == []
    assert apply_nic_firmware(node, ports, [node.image()], allow_downgrade=True)["problems"] == []
    assert node.did("burn")


def test_a_burn_that_fails_stops_before_the_next_card(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0"), node.port("mlx5_1", "0000:4d:00.0")]
    node.fail["burn"] = lambda: Output(
        1, BURNED[:60] + "\n-E- Burning FS4 image failed: Flash write error\n", ""
    )
    (line,) = apply_nic_firmware(node, ports, [node.image()])["problems"]
    assert "Flash write error" in line and "nothing was written" in line
    assert len(node.did("burn")) == 1


def test_a_burn_that_says_well_and_changes_nothing_is_found(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    node.fail["burn"] = lambda: Output(0, BURNED, "")
    (line,) = apply_nic_firmware(node, ports, [node.image()])["problems"]
    assert "was set and reads 20.35.1012 afterwards" in line


def test_a_tool_that_hangs_is_one_line(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    node.fail["q"] = hangs
    (line,) = apply_nic_firmware(node, ports, [node.image()])["problems"]
    assert line == "flint -d 0000:17:00.0 q: gave no answer within 60 s; look at the kernel log"


def test_the_distribution_s_tools_do_as_well(node: Node) -> None:
    node.tools = {"mstflint", "mstfwreset"}
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    apply_nic_firmware(node, ports, [node.image()], allow_reset=True)
    assert {line.split()[0] for line in node.ran} == {"mstflint", "mstfwreset"}
    node.tools = set()
    with pytest.raises(HostError, match="install mft or mstflint"):
        Tools(node)


def test_images_that_are_not_on_the_node_yet_are_asked_for(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0")]
    found = apply_nic_firmware(node, ports, [node.image(path=None), node.image("MT_0000000838", path=None)])
    assert found["needed"] == [PSID] and found["problems"] == [] and not node.did("burn")
    assert "no card has the PSID MT_0000000838" in found["msg"]


def test_what_the_driver_runs_counts_where_flint_is_silent(node: Node) -> None:
    ports = [node.port("mlx5_0", "0000:17:00.0", version="20.36.1012")]
    (node.folder / "sys/class/infiniband/mlx5_0/fw_ver").write_text("20.34.1002\n")
    found = apply_nic_firmware(node, ports, [node.image()])
    assert found["pending"] and not found["changed"]


def test_a_port_without_a_device_is_told(node: Node) -> None:
    (line,) = apply_nic_firmware(node, [{"device": "mlx5_9"}], [node.image()])["problems"]
    assert line.startswith("mlx5_9: is not under /sys/class/infiniband")
    assert apply_nic_firmware(node, [{"device": "mlx5_9"}], [])["changed"] is False
