"""Xid lines and PCI addresses: every spelling in the field, and garbage of every kind."""

import pytest
from check_cases import run_check
from fake_h200 import h200_node, h200_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.checks.pci import find_address, normal_address
from agent.checks.registry import load_all
from agent.checks.xid_lines import judged, named, parse
from agent.checks.xid_table import RECOVERY, TABLE, UNLISTED, XidClass
from agent.errors import ParseError
from agent.model import ActionKind, Verdict
from agent.sources import KmsgRecord

CHECKS = load_all()


def record(text: str) -> KmsgRecord:
    return KmsgRecord(1, 10.0, 3, text)


@pytest.mark.parametrize(
    ("text", "code", "address"),
    [
        ("NVRM: Xid (PCI:0000:05:00): 79, pid=1, name=x, GPU has fallen off the bus.", 79, "0000:05:00.0"),
        ("NVRM: Xid (0000:05:00): 79, GPU has fallen off the bus.", 79, "0000:05:00.0"),
        ("NVRM: Xid (PCI:000F:01:00): 31, Ch 00000008", 31, "000f:01:00.0"),
        ("NVRM: Xid (PCI:00000000:05:00): 48, pid='<unknown>', name=<unknown>, DBE", 48, "0000:05:00.0"),
        ("NVRM: Xid (PCI:0000:05:00.0): 48", 48, "0000:05:00.0"),
        ("NVRM: Xid (PCI:0000:05:00 GPU-I:03): 43, pid=1", 43, "0000:05:00.0"),
        ("[  12.3] NVRM: Xid (PCI:0000:05:00): 119, pid=1, Timeout", 119, "0000:05:00.0"),
        ("NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.", 79, "0000:5d:00.0"),
        ("NVRM: GPU at PCI:0000:5d:00: Fallen Off The Bus", 79, "0000:5d:00.0"),
        ("NVRM: GPU has fallen off the bus", 79, None),
    ],
)
def test_spellings(text: str, code: int, address: str | None) -> None:
    events, garbled = parse([record(text)])
    assert [(event.code, event.address) for event in events] == [(code, address)]
    assert not garbled


@pytest.mark.parametrize("text", ["NVRM: Xid (PCI:0000:05:00): ", "NVRM: Xid (PCI:00", "NVRM: Xid 79"])
def test_what_cannot_be_read_is_not_dropped(text: str) -> None:
    assert parse([record(text)]) == ([], [text])


def test_other_lines_are_no_faults() -> None:
    lines = [
        "NVRM: loading NVIDIA UNIX Open Kernel Module",
        "mlx5_core 0000:06:00.0: Port module event: plugged",
    ]
    assert parse([record(line) for line in lines]) == ([], [])


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_garbage_never_raises(text: str) -> None:
    for line in (
        text,
        f"NVRM: Xid {text}",
        f"NVRM: Xid (PCI:0000:05:00): {text}",
        f"{text} fallen off the bus",
    ):
        events, _ = parse([record(line)])
        for event in events:
            assert judged(event)[0] in XidClass
            assert named(event)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=80))
def test_an_xid_prefix_never_passes_for_all_subjects(text: str) -> None:
    node = h200_node()
    # Code 0 is in no table, so whatever follows is at least told.
    node.data["kmsg"].append("3,900,4900000000,-;NVRM: Xid (PCI:0000:5d:00): 0 " + " ".join(text.split()))
    findings = run_check(CHECKS["xid"], node, h200_profile())
    assert findings["gpu3"].verdict is not Verdict.PASS or findings["node"].verdict is not Verdict.PASS


@pytest.mark.parametrize("code", [46, 48, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158])
def test_codes_that_withhold_traffic_at_once(code: int) -> None:
    assert TABLE[code].xid_class is XidClass.IMMEDIATE
    assert TABLE[code].action.kind is not ActionKind.NONE


@pytest.mark.parametrize("code", [8, 13, 31, 32, 43, 45, 68, 69, 94])
def test_codes_that_only_restart_the_engine(code: int) -> None:
    assert TABLE[code].xid_class is XidClass.RESTART
    assert TABLE[code].action.kind is ActionKind.RESTART_ENGINE


@pytest.mark.parametrize("code", [63, 92, 152, 153])
def test_codes_that_are_information(code: int) -> None:
    assert TABLE[code].xid_class is XidClass.INFO


def test_an_unreadable_refinement_counts_as_the_worst() -> None:
    for code in (74, 147, 154):
        events, _ = parse([record(f"NVRM: Xid (PCI:0000:05:00): {code}, something else")])
        assert judged(events[0])[0] is XidClass.IMMEDIATE


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("Fatal", XidClass.IMMEDIATE),
        ("Nonfatal", XidClass.WATCH),
        ("Non-fatal", XidClass.WATCH),
        ("Nonfatal then Fatal", XidClass.IMMEDIATE),
    ],
)
def test_nvlink5_subcodes(word: str, wanted: XidClass) -> None:
    events, _ = parse(
        [record(f"NVRM: Xid (PCI:0000:05:00): 149, pid=1, NETIR_LINK_EVT {word} XC0 i0 Link 03 (0x4)")]
    )
    assert judged(events[0])[0] is wanted


@pytest.mark.parametrize("action", sorted(RECOVERY))
def test_recovery_actions(action: int) -> None:
    line = f"NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x0 (None) to 0x{action:x} (x)"
    events, _ = parse([record(line)])
    assert judged(events[0])[0] is RECOVERY[action][1]
    assert RECOVERY[action][0] in named(events[0])


def test_a_code_of_the_future_is_watched() -> None:
    events, _ = parse([record("NVRM: Xid (PCI:0000:05:00): 12345, new")])
    assert judged(events[0]) == (XidClass.WATCH, UNLISTED.action)


@pytest.mark.parametrize(
    "text", ["00000000:05:00.0", "0000:05:00.0", "0000:05:00", "05:00.0", "05:00", " 0000:05:00.0\n"]
)
def test_one_address_in_many_spellings(text: str) -> None:
    assert normal_address(text) == "0000:05:00.0"


@pytest.mark.parametrize("text", ["", "garbage", "0000:05", "0000:zz:00.0", "0000:05:00.9", "1:0000:05:00.0"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ParseError):
        normal_address(text)
    assert find_address("no address here, at 12:34:56") is None


@pytest.mark.parametrize("head", ["NVRM:  Xid (", "NVRM: XID (", "NVRM: Xid(", "nvrm: Xid (PCI:"])
def test_other_spellings_of_the_head_are_read(head: str) -> None:
    events, garbled = parse([KmsgRecord(1, 1.0, 3, f"{head}0000:05:00): 79, x")])
    assert [(event.code, event.address) for event in events] == [(79, "0000:05:00.0")]
    assert garbled == []
