"""Module memory maps and their netlink answers as constructed bytes: SFF-8636, CMIS, refusals, garbage."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import NotSupported, ParseError, SourceError, SourceUnavailable
from agent.sources import DriverInfo, ModuleInfo, PauseInfo, RingInfo
from agent.sources import net_driver as driver
from agent.sources import net_eeprom as eeprom
from agent.sources import net_wire as wire
from agent.sources.net_module import LOWER, parse_module


def half(base: int, values: dict[int, bytes]) -> bytes:
    memory = bytearray(128)
    for at, raw in values.items():
        memory[at - base : at - base + len(raw)] = raw
    return bytes(memory)


def reader(pages: dict[int, bytes]) -> Callable[[int], bytes]:
    def read(page: int) -> bytes:
        if page not in pages:
            raise SourceUnavailable(f"page {page} was not expected to be read")
        return pages[page]

    return read


def qsfp28(lower: dict[int, bytes] | None = None, *, technology: int = 0x00) -> dict[int, bytes]:
    below = {0: b"\x11", 22: struct.pack(">h", int(41.5 * 256))}
    below |= {34: struct.pack(">4H", 8000, 8100, 8200, 7900), 50: struct.pack(">4H", *[9000] * 4)}
    named = {
        147: bytes([technology]),
        148: b"NVIDIA          ",
        168: b"MMA1B00-C100D   ",
        196: b"MT0000FT00001   ",
    }
    return {LOWER: half(0, below | (lower or {})), 0: half(128, named)}


def osfp(
    lower: dict[int, bytes] | None = None, lanes: dict[int, bytes] | None = None, **upper: int
) -> dict[int, bytes]:
    below = {0: b"\x19", 1: b"\x51", 14: struct.pack(">h", 52 * 256)}
    named = {129: b"NVIDIA          ", 148: b"MMA4Z00-NS      ", 166: b"MT0000FT00002   "}
    named |= {210: bytes([upper.get("unused", 0xF0)]), 212: bytes([upper.get("technology", 0x00)])}
    power = {154: struct.pack(">8H", *[10000] * 8), 186: struct.pack(">8H", *[9500] * 4, *[0] * 4)}
    return {
        LOWER: half(0, below | (lower or {})),
        0: half(128, named),
        0x11: half(128, power | (lanes or {})),
    }


def test_optical_qsfp28() -> None:
    assert parse_module(reader(qsfp28())) == ModuleInfo(
        kind="QSFP28 optical",
        vendor="NVIDIA",
        part_number="MMA1B00-C100D",
        serial="MT0000FT00001",
        temperature_c=41.5,
        rx_power_mw=(0.8, 0.81, 0.82, 0.79),
        tx_power_mw=(0.9, 0.9, 0.9, 0.9),
    )


@pytest.mark.parametrize(
    ("at", "byte", "alarm"),
    [
        (6, 0x80, "temperature high alarm"),
        (6, 0x10, "temperature low warning"),
        (7, 0x40, "voltage low alarm"),
        (9, 0x40, "rx power low alarm lane 1"),
        (9, 0x04, "rx power low alarm lane 2"),
        (10, 0x10, "rx power low warning lane 3"),
        (10, 0x08, "rx power high alarm lane 4"),
        (12, 0x01, "tx bias low warning lane 4"),
        (13, 0x80, "tx power high alarm lane 1"),
        (3, 0x04, "rx loss of signal lane 3"),
        (4, 0x02, "tx fault lane 2"),
    ],
)
def test_each_flag_of_sff_8636(at: int, byte: int, alarm: str) -> None:
    assert parse_module(reader(qsfp28({at: bytes([byte])}))).alarms == (alarm,)


def test_copper_and_readings_that_are_not_ready_have_no_sensors() -> None:
    for pages in (qsfp28(technology=0xA0), qsfp28({2: b"\x01"})):
        info = parse_module(reader(pages))
        assert (info.temperature_c, info.rx_power_mw, info.alarms) == (None, (), ())
    assert parse_module(reader(qsfp28(technology=0xA0))).kind == "QSFP28 copper"


def test_temperature_below_zero() -> None:
    assert parse_module(reader(qsfp28({22: struct.pack(">h", -5 * 256)}))).temperature_c == -5.0


def test_optical_osfp_reports_the_lanes_it_has() -> None:
    info = parse_module(reader(osfp()))
    assert (info.kind, info.vendor, info.part_number) == ("OSFP optical", "NVIDIA", "MMA4Z00-NS")
    assert (info.serial, info.temperature_c, info.alarms) == ("MT0000FT00002", 52.0, ())
    assert info.rx_power_mw == (0.95,) * 4
    assert info.tx_power_mw == (1.0,) * 4


@pytest.mark.parametrize(
    ("at", "byte", "alarms"),
    [
        (149, 0x04, ("rx power high alarm lane 3",)),
        (150, 0x01, ("rx power low alarm lane 1",)),
        (152, 0xF2, ("rx power low warning lane 2",)),
        (139, 0x08, ("tx power high alarm lane 4",)),
        (146, 0x01, ("tx bias low warning lane 1",)),
        (135, 0x01, ("tx fault lane 1",)),
        (136, 0x02, ("tx loss of signal lane 2",)),
        (147, 0x04, ("rx loss of signal lane 3",)),
    ],
)
def test_each_lane_flag_of_cmis(at: int, byte: int, alarms: tuple[str, ...]) -> None:
    assert parse_module(reader(osfp(lanes={at: bytes([byte])}))).alarms == alarms


@pytest.mark.parametrize(
    ("bit", "alarm"),
    [(0, "temperature high alarm"), (2, "temperature high warning"), (5, "voltage low alarm")],
)
def test_each_module_flag_of_cmis(bit: int, alarm: str) -> None:
    assert parse_module(reader(osfp({9: bytes([1 << bit])}))).alarms == (alarm,)


def test_copper_cmis_reads_no_lane_page() -> None:
    passive = osfp({2: b"\x80"})
    del passive[0x11]
    info = parse_module(reader(passive))
    assert (info.kind, info.temperature_c, info.rx_power_mw) == ("OSFP copper", None, ())
    active = osfp(technology=0x0B)
    del active[0x11]
    assert parse_module(reader(active)).temperature_c == 52.0


def test_other_kinds_and_short_memory() -> None:
    with pytest.raises(NotSupported, match="0x03"):
        parse_module(reader({LOWER: half(0, {0: b"\x03"})}))
    with pytest.raises(ParseError, match="127 bytes"):
        parse_module(reader({LOWER: b"\x11" * 127}))


@given(
    st.lists(st.binary(min_size=100, max_size=140), min_size=3, max_size=3), st.sampled_from([0x11, 0x19, 0])
)
def test_any_memory_is_read_or_refused(halves: list[bytes], kind: int) -> None:
    pages = {LOWER: bytes([kind]) + halves[0][1:], 0: halves[1], 0x11: halves[2]}
    try:
        info = parse_module(reader(pages))
    except SourceError:
        return
    assert all(0x20 <= ord(sign) < 0x7F for sign in info.vendor + info.part_number + info.serial)


def generic(attributes: bytes) -> bytes:
    return wire.message(0x14, 0, 1, struct.pack("=BBH", 1, 1, 0) + attributes)


def test_family_and_eeprom_answers() -> None:
    assert eeprom.parse_family(generic(wire.attribute(1, struct.pack("=H", 21)))) == 21
    assert eeprom.parse_eeprom(generic(wire.attribute(7, bytes(range(128))))) == bytes(range(128))
    for data in (b"", generic(b""), generic(wire.attribute(7, b"\0" * 60))):
        with pytest.raises(ParseError):
            eeprom.parse_eeprom(data)
    with pytest.raises(ParseError):
        eeprom.parse_family(generic(b""))


def test_requests_are_what_ethtool_sends() -> None:
    request = eeprom.eeprom_request(21, 3, "eth0", 0x11)
    attributes = dict(wire.attributes(request[wire.HEADER.size + 4 :]))
    assert dict(wire.attributes(attributes[1])) == {2: b"eth0\0"}
    assert attributes[2] == struct.pack("=I", 128)
    assert attributes[3] == struct.pack("=I", 128)
    assert (attributes[4], attributes[5], attributes[6]) == (b"\x11", b"\0", b"\x50")
    lower = dict(wire.attributes(eeprom.eeprom_request(21, 3, "eth0", LOWER)[wire.HEADER.size + 4 :]))
    assert (lower[2], lower[4]) == (struct.pack("=I", 0), b"\0")


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        ("module of eth0: Operation not permitted", SourceUnavailable, "CAP_NET_ADMIN"),
        ("module of eth0: Invalid argument", NotSupported, "kind of module"),
        ("module of eth0: Input/output error", SourceUnavailable, "Input/output"),
    ],
)
def test_refusals_are_worded(refusal: str, kind: type[SourceError], words: str) -> None:
    error = eeprom._worded("module of eth0", SourceUnavailable(refusal))
    assert type(error) is kind
    assert words in str(error)


def test_driver_information() -> None:
    fields = [b"mlx5_core", b"24.10-1.1.4", b"40.48.1000 (NVD0000000072)", b"0000:05:00.0", b"", b""]
    data = struct.pack("=I32s32s32s32s32s12sIIIII", 3, *fields, 0, 0, 0, 0, 0)
    assert driver.parse_driver(data) == DriverInfo(
        "mlx5_core", "24.10-1.1.4", "40.48.1000 (NVD0000000072)", "0000:05:00.0"
    )
    for bad in (data[:100], bytes(len(data))):
        with pytest.raises(ParseError):
            driver.parse_driver(bad)


def test_ring_parameters() -> None:
    data = struct.pack("=9I", 0x10, 8192, 0, 0, 4096, 1024, 0, 0, 512)
    assert driver.parse_ring(data) == RingInfo(rx=1024, tx=512, rx_max=8192, tx_max=4096)
    for bad in (data[:35], b"\0" * 36):
        with pytest.raises(ParseError):
            driver.parse_ring(bad)


def test_pause_parameters() -> None:
    assert driver.parse_pause(struct.pack("=IIII", 0x12, 0, 1, 0)) == PauseInfo(False, True, False)
    for bad in (b"\0" * 15, b"\0" * 16):
        with pytest.raises(ParseError):
            driver.parse_pause(bad)
