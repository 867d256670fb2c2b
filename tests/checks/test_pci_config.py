"""PCI configuration space: what is in it, what is not shown, and what is no configuration space at all."""

from __future__ import annotations

import pytest
from fake_h200_host import config_space
from hypothesis import given
from hypothesis import strategies as st

from agent.checks.pci_config import (
    CAP_EXPRESS,
    CAP_EXTENDED_ACS,
    acs_control,
    aspm_control,
    capability,
    extended_capability,
    max_read_request_bytes,
)
from agent.errors import DeviceLost, NotSupported, ParseError, SourceError, SourceUnavailable


def space(**what: int | None) -> bytes:
    return bytes.fromhex(config_space(**what)["hex"])  # type: ignore[arg-type]


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def test_capabilities_are_found_behind_others() -> None:
    assert capability(space(), CAP_EXPRESS) == 0x60
    assert capability(space(), 0x01) == 0x40
    assert extended_capability(space(), CAP_EXTENDED_ACS) == 0x110


@pytest.mark.parametrize(("code", "size_b"), [(0, 128), (2, 512), (5, 4096)])
def test_max_read_request(code: int, size_b: int) -> None:
    assert max_read_request_bytes(space(read_request_code=code)) == size_b


@pytest.mark.parametrize("code", [6, 7])
def test_a_read_request_of_no_size(code: int) -> None:
    with pytest.raises(ParseError, match="MaxReadReq"):
        max_read_request_bytes(space(read_request_code=code))


def test_acs_and_aspm() -> None:
    assert acs_control(space(acs=0x1D)) == 0x1D
    assert aspm_control(space(aspm=0b10)) == 0b10
    with pytest.raises(NotSupported, match="0x000d"):
        acs_control(space(acs=None))


def test_what_only_root_sees_is_missing_evidence() -> None:
    shown = space()[:64]
    for read in (max_read_request_bytes, aspm_control, acs_control):
        with pytest.raises(SourceUnavailable, match="only root"):
            read(shown)
    with pytest.raises(SourceUnavailable, match="shown to byte 256"):
        acs_control(space()[:256])


def test_a_device_without_lists() -> None:
    with pytest.raises(NotSupported, match="no capability list"):
        capability(changed(space(), 0x06, b"\0"), CAP_EXPRESS)
    with pytest.raises(NotSupported, match="0x11"):
        capability(space(), 0x11)
    with pytest.raises(NotSupported, match="no extended"):
        acs_control(changed(space(), 0x100, b"\xff" * 4))


def test_loops_and_nonsense_end() -> None:
    with pytest.raises(ParseError, match="loop"):
        capability(changed(space(), 0x61, b"\x40"), 0x11)
    with pytest.raises(ParseError, match="header"):
        capability(changed(space(), 0x34, b"\x10"), CAP_EXPRESS)
    with pytest.raises(ParseError, match="loop"):
        extended_capability(changed(space(), 0x110, (0x0001 | 0x100 << 20).to_bytes(4, "little")), 0x99)
    with pytest.raises(ParseError, match="before byte 256"):
        extended_capability(changed(space(), 0x110, (0x0001 | 0x040 << 20).to_bytes(4, "little")), 0x99)


@pytest.mark.parametrize(
    ("data", "error"), [(b"", ParseError), (b"\0" * 256, ParseError), (b"\xff" * 256, DeviceLost)]
)
def test_no_device(data: bytes, error: type[SourceError]) -> None:
    for read in (max_read_request_bytes, acs_control, aspm_control):
        with pytest.raises(error):
            read(data)


@given(st.binary(max_size=600))
def test_random_bytes_are_values_or_refusals(data: bytes) -> None:
    for read in (max_read_request_bytes, acs_control, aspm_control):
        try:
            value = read(data)
        except SourceError:
            continue
        assert 0 <= value <= 0xFFFF


@given(st.integers(0, 0x11F), st.binary(min_size=1, max_size=8))
def test_damaged_spaces_are_values_or_refusals(at: int, damage: bytes) -> None:
    data = changed(space(acs=0x1D), at, damage)
    for read in (max_read_request_bytes, acs_control, aspm_control):
        try:
            read(data)
        except SourceError as cause:
            assert str(cause)
