"""Merging what NVML enumerates now with what it enumerated before."""

from __future__ import annotations

import pytest

from agent.sources.gpu_reading import GpuIdentity
from agent.sources.nvml_roster import Roster, pci_address


def gpu(index: int, letter: str, error: str | None = None) -> GpuIdentity:
    return GpuIdentity(index, f"GPU-{letter}", f"0000:{ord(letter):02x}:00.0", error=error)


def nameless(index: int, error: str = "GPU_IS_LOST") -> GpuIdentity:
    return GpuIdentity(index, None, error=error)


def seen(gpus: tuple[GpuIdentity, ...]) -> list[tuple[str | None, str | None]]:
    return [(each.uuid, each.error) for each in gpus]


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:19:00.0", "0000:19:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:DB:00.0", "10000:db:00.0"),
        ("0000:DB:00.0", "0000:db:00.0"),
    ],
)
def test_address_as_the_kernel_writes_it(bus_id: str, address: str) -> None:
    assert pci_address(bus_id) == address


def test_vanished_gpu_keeps_its_place() -> None:
    roster = Roster()
    roster.merge([gpu(0, "a"), gpu(1, "b"), gpu(2, "c")])
    assert seen(roster.merge([gpu(0, "a"), gpu(1, "c")])) == [
        ("GPU-a", None), ("GPU-b", "GPU_IS_LOST"), ("GPU-c", None),
    ]  # fmt: skip
    assert seen(roster.merge([gpu(0, "a"), gpu(1, "b"), gpu(2, "c")])) == [
        ("GPU-a", None), ("GPU-b", None), ("GPU-c", None),
    ]  # fmt: skip


def test_index_is_only_trusted_while_the_count_is_the_same() -> None:
    roster = Roster()
    roster.merge([gpu(0, "a"), gpu(1, "b")])
    found = roster.at(1, 2)
    assert found is not None
    assert found.uuid == "GPU-b"
    assert roster.at(0, 1) is None


def test_a_nameless_gpu_is_one_of_the_missing() -> None:
    roster = Roster()
    roster.merge([gpu(0, "a"), gpu(1, "b"), gpu(2, "c")])
    assert seen(roster.merge([gpu(0, "a"), nameless(1)])) == [
        ("GPU-a", None), ("GPU-b", "GPU_IS_LOST"), ("GPU-c", "GPU_IS_LOST"),
    ]  # fmt: skip


def test_a_nameless_gpu_never_seen_before_stands_at_its_index() -> None:
    assert seen(Roster().merge([gpu(0, "a"), nameless(1, "TIMEOUT"), gpu(2, "c")])) == [
        ("GPU-a", None), (None, "TIMEOUT"), ("GPU-c", None),
    ]  # fmt: skip


def test_an_error_does_not_overwrite_what_is_known() -> None:
    roster = Roster()
    roster.merge([gpu(0, "a")])
    roster.merge([gpu(0, "a", "TIMEOUT")])
    known = roster.get("GPU-a")
    assert known is not None
    assert known.error is None


def test_all_nameless() -> None:
    assert seen(Roster().merge([nameless(0), nameless(1)])) == [(None, "GPU_IS_LOST")] * 2
