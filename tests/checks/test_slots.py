"""Which GPU is in which slot, and that a reading is of the GPU and the moment it was asked for."""

from dataclasses import replace

import pytest
from fake_h200 import h200_node, h200_profile, uuid_of

from agent.checks.gpus import MAX_READING_AGE_S, count_of, mask_of, plausible_c, read, slots, strangers
from agent.errors import DeviceLost, ParseError, SourceUnavailable
from agent.sources.gpu_reading import GpuReading, NvmlGroup


def test_pinned_slots_follow_the_uuid_and_others_the_bus_order() -> None:
    node = h200_node()
    gpus = node.data["nvml"]["gpus"]
    gpus[0], gpus[1] = gpus[1], gpus[0]
    pinned = slots(node.sources, h200_profile())
    assert [slot.known()[0] for slot in pinned] == [uuid_of(slot) for slot in range(8)]
    unpinned = slots(node.sources, h200_profile({"gpus": {"pins": None}}))
    assert [slot.known()[0] for slot in unpinned][:3] == [uuid_of(1), uuid_of(0), uuid_of(2)]


def test_an_unpinned_slot_does_not_get_a_gpu_that_is_pinned_elsewhere() -> None:
    pin = {"uuid": uuid_of(1)}
    profile = h200_profile({"gpus": {"pins": {**dict.fromkeys(range(8)), 0: pin}}})
    found = slots(h200_node().sources, profile)
    for number in (0, 1):
        with pytest.raises(ParseError, match="appears twice"):
            found[number].known()
    assert found[2].known()[0] == uuid_of(2)


def test_strangers_are_only_those_that_no_slot_accounts_for() -> None:
    node = h200_node()
    inventory = list(node.sources.nvml.inventory())
    assert strangers(inventory, h200_profile()) == []
    assert strangers(inventory, h200_profile({"gpus": {"pins": {7: None}}})) == []
    other = replace(inventory[7], uuid="GPU-99999999-aaaa-bbbb-cccc-0123456789ab")
    assert strangers([*inventory[:7], other], h200_profile()) == [other]


@pytest.mark.parametrize(
    ("uuid", "group"), [(uuid_of(4), NvmlGroup.THERMAL), (uuid_of(3), NvmlGroup.POWER)], ids=["gpu", "group"]
)
def test_a_reading_of_something_else_is_refused(
    uuid: str, group: NvmlGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = h200_node()
    slot = slots(node.sources, h200_profile())[3]
    other = GpuReading(uuid, group, node.clock.now_s, {})
    monkeypatch.setattr(node.nvml, "read", lambda _uuid, _group: other)
    with pytest.raises(ParseError, match="asked NVML for thermal"):
        read(node.sources, slot, NvmlGroup.THERMAL)


def test_a_reading_has_to_be_of_now() -> None:
    node = h200_node()
    slot = slots(node.sources, h200_profile())[3]
    node.nvml.stale_s = MAX_READING_AGE_S
    assert read(node.sources, slot, NvmlGroup.THERMAL).integer("margin_c") == 49
    node.nvml.stale_s = MAX_READING_AGE_S + 1
    with pytest.raises(SourceUnavailable, match="16 s old"):
        read(node.sources, slot, NvmlGroup.THERMAL)


def test_a_lost_gpu_stays_lost_to_every_reader() -> None:
    node = h200_node()
    node.set("nvml.gpus.3.identity.error", "RESET_REQUIRED")
    slot = slots(node.sources, h200_profile())[3]
    with pytest.raises(DeviceLost):
        read(node.sources, slot, NvmlGroup.POWER)


def test_numbers_that_no_device_shows_are_refused() -> None:
    values = {"margin_c": 151, "temperature_c": 150, "slowdown_c": -60, "shutdown_c": -61}
    thermal = GpuReading("u", NvmlGroup.THERMAL, 0.0, values)
    assert (plausible_c(thermal, "temperature_c"), plausible_c(thermal, "slowdown_c")) == (150, -60)
    for field in ("margin_c", "shutdown_c"):
        with pytest.raises(ParseError):
            plausible_c(thermal, field)
    power = GpuReading("u", NvmlGroup.POWER, 0.0, {"event_reasons": 0xFFFF_FFFF, "sm_clock_mhz": -1})
    for field in ("event_reasons", "sm_clock_mhz"):
        with pytest.raises(ParseError):
            mask_of(power, field)
    with pytest.raises(ParseError):
        count_of(power, "sm_clock_mhz")
