"""What firmware images in a profile refuse and contradict."""

from __future__ import annotations

from typing import Any

import pytest
from fake_h200 import h200_profile_data
from pydantic import ValidationError

from agent.bmc_profile import Bmc, FirmwareImage
from agent.fabric_profile import NicSettings
from agent.node_profile import NodeProfile
from agent.profile_rules import cross_problems, notes

SHA = "a" * 64
PSID = "MT_0000000838"


def image(versions: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"versions": versions, "image": "x.bin", "sha256": SHA, "activation": "reset", **more}


def problems(bmc: dict[str, Any] | None = None, nic: dict[str, Any] | None = None) -> list[str]:
    whole = NodeProfile.model_validate(h200_profile_data())
    fabric = whole.fabric.model_copy(update={"nic": NicSettings.model_validate(nic)}) if nic else whole.fabric
    named = Bmc.model_validate({"redfish": {"url": "https://bmc.example"}, **(bmc or {})})
    return [str(each) for each in cross_problems(whole.model_copy(update={"bmc": named, "fabric": fabric}))]


def test_two_images_for_one_component() -> None:
    (line,) = problems({"images": {"a": image({"GPU_*": "2"}), "b": image({"GPU_1": "2", "SW": "1"})}})
    assert line.startswith("bmc.images.b.versions.GPU_1: GPU_1 is also brought by the image a (GPU_*)")
    assert problems({"images": {"a": image({"GPU_*": "2"}), "b": image({"SW": "1"})}}) == []


@pytest.mark.parametrize(
    ("least", "words"),
    [("96.10.6D", "the image brings 96.10.57"), ("words only", "is no version"), ("96.10.57", None)],
)
def test_an_image_beside_the_least_version(least: str, words: str | None) -> None:
    found = problems({"images": {"a": image({"SW_1": "96.10.57"})}, "firmware": {"SW_*": least, "BMC": "9"}})
    assert (found == []) if words is None else (len(found) == 1 and words in found[0])


def nic(version: str, *rows: dict[str, Any], times: int = 1) -> list[str]:
    one = {"board_id": PSID, "version": version, "image": "x.bin", "sha256": SHA}
    return problems(nic={"images": [one] * times, "firmware": [*rows]})


def test_a_nic_image_beside_the_matrix() -> None:
    own, every = {"board_id": PSID, "firmware_min": "28.43.1"}, {"board_id": "*", "firmware_min": "28.99"}
    assert nic("28.43.2566", every, own) == []
    assert nic("28.43.2566") == []
    (line,) = nic("28.39.1002", own)
    assert line.startswith("fabric.nic.images.0.version: the image brings 28.39.1002")
    (line,) = nic("28.43.2566", every)
    assert "28.99 or newer" in line
    (line,) = nic("28.43.2566", {"board_id": PSID, "firmware_min": "newest"})
    assert "is not a version" in line


def test_two_nic_images_for_one_kind_of_card() -> None:
    (line,) = nic("28.43.2566", times=2)
    assert line.startswith(f"fabric.nic.images.1.board_id: {PSID} has two images")


@pytest.mark.parametrize(
    "more",
    [
        {"sha256": "A" * 64},
        {"sha256": "abc"},
        {"versions": {}},
        {"image": ""},
        {"activation": "perhaps"},
        {"image_url": "https://user:secret@images.example/x.bin"},
        {"image_url": "file:///x.bin"},
        {"match": "newest"},
        {"url": "https://images.example/x.bin"},
    ],
)
def test_what_an_image_must_be(more: dict[str, Any]) -> None:
    FirmwareImage.model_validate(image({"BMC": "1"}))
    with pytest.raises(ValidationError):
        FirmwareImage.model_validate({**image({"BMC": "1"}), **more})


def test_images_without_a_bmc_are_pointed_out() -> None:
    data = h200_profile_data() | {"bmc": {"images": {"a": image({"BMC": "1"})}}}
    assert any(note.startswith("bmc.images is set") for note in notes(NodeProfile.model_validate(data)))
