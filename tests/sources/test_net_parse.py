"""Netlink, DCB and ethtool answers as bytes: right ones, refusals, and garbage."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import DeviceAbsent, NotSupported, ParseError, SourceError, SourceUnavailable
from agent.sources import DcbInfo, LinkInfo
from agent.sources import net_dcb as dcb
from agent.sources import net_wire as wire
from agent.sources.net_ethtool import parse_stats
from agent.sources.net_events import LinkFollower
from agent.sources.net_link import RTM_DELLINK, RTM_NEWLINK, parse_link


def dcb_answer(
    pfc_en: int = 0b1000, dscp: dict[int, int] | None = None, dcbx: int | None = 0x0D, *, ieee: bool = True
) -> bytes:
    """An answer to DCB_CMD_IEEE_GET as mlx5 gives it."""
    pfc = struct.pack("=BBBxH2x8Q8Q", 8, pfc_en, 0, 0, *range(8), *range(8))
    entries = [struct.pack("=BBH", 5, priority, code) for code, priority in (dscp or {}).items()]
    entries.append(struct.pack("=BBH", 1, 0, 0x8906))  # an Ethertype entry, which is not about DSCP
    table = b"".join(wire.attribute(dcb.DCB_ATTR_IEEE_APP, entry) for entry in entries)
    inner = wire.attribute(1, b"\0" * 44)  # ETS
    inner += wire.attribute(dcb.DCB_ATTR_IEEE_PFC, pfc)
    inner += wire.attribute(dcb.DCB_ATTR_IEEE_APP_TABLE | 0x8000, table)
    body = struct.pack("=BBH", 0, dcb.DCB_CMD_IEEE_GET, 0) + wire.attribute(dcb.DCB_ATTR_IFNAME, b"eth0\0")
    if ieee:
        body += wire.attribute(dcb.DCB_ATTR_IEEE | 0x8000, inner)
    if dcbx is not None:
        body += wire.attribute(dcb.DCB_ATTR_DCBX, bytes([dcbx]))
    return wire.message(dcb.RTM_GETDCB, 0, 1, body)


def test_dcb_of_a_lossless_port() -> None:
    assert dcb.parse_dcb(dcb_answer(dscp={26: 3, 48: 6})) == DcbInfo(
        pfc_on=(False, False, False, True, False, False, False, False),
        trust="dscp",
        dscp_to_priority={26: 3, 48: 6},
        host_managed=True,
    )


def test_dcb_without_dscp_entries_trusts_pcp() -> None:
    info = dcb.parse_dcb(dcb_answer(pfc_en=0))
    assert (info.trust, dict(info.dscp_to_priority), any(info.pfc_on)) == ("pcp", {}, False)


@pytest.mark.parametrize(("dcbx", "host"), [(0x0C, False), (0x0D, True), (None, True)])
def test_firmware_or_host_owns_dcbx(dcbx: int | None, host: bool) -> None:
    assert dcb.parse_dcb(dcb_answer(dcbx=dcbx)).host_managed is host


def test_dcb_without_pfc_is_not_supported() -> None:
    body = struct.pack("=BBH", 0, dcb.DCB_CMD_IEEE_GET, 0) + wire.attribute(dcb.DCB_ATTR_IEEE, b"")
    with pytest.raises(NotSupported, match="PFC"):
        dcb.parse_dcb(wire.message(dcb.RTM_GETDCB, 0, 1, body))


def test_dcb_request_is_what_the_dcb_tool_sends() -> None:
    expected = "200000004e000100010000000000000000150000090001006574683000000000"
    request = dcb.get_dcb_request(1, "eth0")
    assert request.hex() == expected


@pytest.mark.parametrize("data", [b"", b"\0" * 16, dcb_answer()[:40], dcb_answer(ieee=False)])
def test_cut_dcb_answers_are_parse_errors(data: bytes) -> None:
    with pytest.raises(ParseError):
        dcb.parse_dcb(data)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_damaged_dcb_answers_never_crash(noise: bytes, at: int) -> None:
    whole = dcb_answer(dscp={26: 3})
    data = whole[:at] + noise + whole[at + len(noise) :]
    try:
        info = dcb.parse_dcb(data)
    except SourceError:
        return
    assert len(info.pfc_on) == 8


def link_message(kind: int = RTM_NEWLINK, *, state: int = 6, carrier: int = 1, sequence: int = 0) -> bytes:
    """A link message of the kernel: IFLA_IFNAME 3, MTU 4, OPERSTATE 16, CARRIER 33, CARRIER_DOWN_COUNT 48."""
    body = struct.pack("=BxHiII", 0, 1, 7, 0x11043, 0)
    for attribute, payload in (
        (3, b"eth2\0"), (4, struct.pack("=I", 9000)), (16, bytes([state])), (33, bytes([carrier])),
        (48, struct.pack("=I", 4)),
    ):  # fmt: skip
        body += wire.attribute(attribute, payload)
    return wire.message(kind, 0, sequence, body)


def test_link_message() -> None:
    assert parse_link(link_message(state=2, carrier=0)) == (7, LinkInfo("eth2", "down", False, 9000, 4))


def test_link_message_without_a_name_is_refused() -> None:
    with pytest.raises(ParseError):
        parse_link(wire.message(RTM_NEWLINK, 0, 0, struct.pack("=BxHiII", 0, 1, 7, 0, 0)))


@given(st.binary(max_size=120))
def test_damaged_link_messages_never_crash(data: bytes) -> None:
    with pytest.raises(ParseError):
        parse_link(data)


def test_follower_tells_changes_from_repeats() -> None:
    follower = LinkFollower(lambda _kind: None)
    dump = 0x6E676174
    assert not follower._changed(link_message(sequence=dump))
    assert not follower._changed(link_message())
    assert follower._changed(link_message(state=2, carrier=0))
    assert not follower._changed(link_message(state=2, carrier=0))
    assert follower._changed(link_message(state=2, carrier=0) + link_message())
    assert follower._changed(link_message(RTM_DELLINK))
    assert not follower._changed(link_message(RTM_DELLINK))
    assert follower._changed(b"\xff" * 9)


def test_messages_and_refusals() -> None:
    refusal = wire.message(wire.NLMSG_ERROR, 0, 5, struct.pack("=i", -errno.ENODEV) + b"\0" * 16)
    assert wire.error_number(refusal) == errno.ENODEV
    with pytest.raises(DeviceAbsent):
        wire._answer("link x", refusal, 5)
    with pytest.raises(ParseError, match="another request"):
        wire._answer("link x", refusal, 6)
    other = wire.message(RTM_NEWLINK, 0, 9, b"")
    assert wire._answer("link x", other + link_message(sequence=4), 4)[:4] == link_message(sequence=4)[:4]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENODEV, DeviceAbsent),
        (errno.EOPNOTSUPP, NotSupported),
        (errno.EPERM, SourceUnavailable),
    ],
)
def test_errno(number: int, kind: type[SourceError]) -> None:
    assert type(wire.errno_error("x", number)) is kind


@given(st.binary(max_size=100))
def test_any_bytes_as_messages_and_attributes(data: bytes) -> None:
    for walk in (wire.messages, wire.attributes):
        try:
            list(walk(data))
        except ParseError:
            continue


def ethtool_answers(stats: dict[str, int]) -> tuple[bytes, bytes]:
    names = struct.pack("=III", 0x1B, 1, len(stats)) + b"".join(
        name.encode().ljust(32, b"\0") for name in stats
    )
    return names, struct.pack("=II", 0x1D, len(stats)) + struct.pack(f"={len(stats)}Q", *stats.values())


def test_ethtool_statistics() -> None:
    stats = {"rx_prio3_pause": 2**63, "  padded": 1, "x" * 32: 0}
    assert parse_stats(*ethtool_answers(stats)) == {"rx_prio3_pause": 2**63, "padded": 1, "x" * 32: 0}


def test_ethtool_statistics_that_changed_meanwhile_or_are_cut() -> None:
    names, _ = ethtool_answers({"a": 1})
    _, values = ethtool_answers({"a": 1, "b": 2})
    with pytest.raises(ParseError, match="changed"):
        parse_stats(names, values)
    for cut in (8, 20):
        with pytest.raises(ParseError):
            parse_stats(names[:cut], ethtool_answers({"a": 1})[1])


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_any_bytes_as_statistics(names: bytes, values: bytes) -> None:
    try:
        parse_stats(names, values)
    except ParseError:
        return
