"""Ways to spoil one reading of a node: every kind of source with what it can really hold, and some worse."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from property_nodes import spoiled, value_at

from agent.group.status import Stage
from agent.model import EnginePhase
from agent.sources import CanaryVerdict

#: What a reading of a typed source (netlink, systemd, an engine) can hold besides what is right.
EXTREMES: dict[type, tuple[Any, ...]] = {
    bool: (True, False),
    int: (0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1),
    float: (0.0, 1e-300, -1e18, 1e18),
    str: ("", "garbage", "\u202e\x00", "x" * 4000),
}
#: Fields that hold one of a few words: their sources give no other.
WORDS: dict[str, tuple[Any, ...]] = {
    "phase": tuple(phase.value for phase in EnginePhase),
    "verdict": tuple(verdict.value for verdict in CanaryVerdict),
    "stage": tuple(stage.value for stage in Stage),
    "summary": ("garbage", "x" * 4000),
}
#: What an untyped source (NVML values, JSON of a BMC) can hold.
ANYTHING: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -1e300,
    math.nan, math.inf, -math.inf,
    "", "garbage", "0x", "-", "\x00", "9" * 400, "x" * 5000, [], [None], [0] * 3, [-1] * 300, [[]], {},
    {"a": {}},
)  # fmt: skip
#: What a file can hold.
TEXTS: tuple[Any, ...] = (
    "", "garbage", "-1", "0", "4", "0x", "0xffffffffffffffff", "9" * 30, "9" * 5000, "N/A", "4:", ": ACTIVE",
    "\x00\x01", "[", "always madvise never", "a b c d", "\n\n", "1\n2\n3", {"hex": ""}, {"hex": "ff" * 64},
    {"hex": "00" * 300}, {"hex": "de10"}, "\u0662\u0663", "nan", "inf", "1e9", "unlimited", "0-", "0-4096,",
)  # fmt: skip
LINKS = ("", "garbage", "../../../0000:zz:00.0", "/", "../" * 300, "../../../devices/pci0000:00")
REFUSALS: tuple[dict[str, str], ...] = tuple(
    {"error": name}
    for name in ("NOT_SUPPORTED", "TIMEOUT", "UNKNOWN", "GPU_IS_LOST", "ABSENT", "NO_PERMISSION")
)
LINES = (
    "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:5d:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (Reset)",
    "NVRM: Xid (PCI:0000:5d:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 4 (0x00000004 0x0 0x0 0x0 0x0 0x0)",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    "mlx5_core 0000:5e:00.0 eth3: Link down",
    "mlx5_core 0000:5e:00.0: 126.016 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x8 link",
    "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High Temperature",
    "pcieport 0000:5c:01.0: AER: Corrected error message received from 0000:5d:00.0",
    "nvme nvme0: I/O 1 (I/O Cmd) QID 2 timeout, aborting",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
    "mce: [Hardware Error]: Machine check events logged",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:99]",
    "Out of memory: Killed process 4242 (vllm) total-vm:1kB, anon-rss:1kB",
)  # fmt: skip
IDENTITIES: tuple[tuple[str, Any], ...] = (
    ("uuid", None), ("uuid", ""), ("uuid", "GPU-garbage"), ("pci_bus_id", None), ("pci_bus_id", "garbage"),
    ("name", None), ("serial", ""), ("vbios", None), ("index", 99), ("error", "GPU_IS_LOST"),
    ("error", "UNKNOWN"),
)  # fmt: skip
JUNK = ("", "0", "\u202e", "9" * 40, "): -1,", "(((", "%s%n", " " * 300, "é\x7f")


def spoil(data: dict[str, Any], path: str, choice: int) -> dict[str, Any]:
    """The data with one reading spoiled in the way that a number chooses."""
    kind = path.partition(":")[0].partition(".")[0]
    if kind == "kmsg":
        return {**data, "kmsg": [*data["kmsg"], _line(choice)]}
    now = value_at(data, path)
    if now is None:
        return data  # an earlier change has taken it away
    options = list(_options(kind, path, now))
    drop, value = options[choice % len(options)]
    return spoiled(data, path, value, drop=drop)


def _line(choice: int) -> str:
    """A line of the kernel log, cut off somewhere, with junk at its end."""
    text = LINES[choice % len(LINES)]
    cut = text[: choice // 7 % (len(text) + 1)] + JUNK[choice // 3 % len(JUNK)]
    level, seq = choice % 8, 4000 + choice % 2
    return f"{level},{seq},{(choice * 7919) % 10**10},-;{cut}"


def _options(kind: str, path: str, now: Any) -> Iterator[tuple[bool, Any]]:
    """(drop, value) of every way to spoil what is there now."""
    yield from ((False, refusal) for refusal in REFUSALS)
    if path in ("nvml.gpus", "nvml.system"):
        yield from ((False, value) for value in _identities(path, now))
        return
    if kind != "engines":
        yield True, None
    if kind == "nvml":
        yield from ((False, value) for value in (*ANYTHING, *_shorter(now)))
    elif kind == "files":
        yield from ((False, value) for value in (*TEXTS, *_shorter(now)))
    elif kind == "links":
        yield from ((False, value) for value in LINKS)
    elif kind == "bmc":
        yield from ((False, value) for value in _documents(now))
    else:
        yield from ((False, value) for value in _records(now))


def _identities(path: str, now: Any) -> Iterator[Any]:
    """Lists of GPUs that are short, doubled or half known."""
    if path == "nvml.system" or not isinstance(now, list) or not now:
        yield from _records(now)
        return
    twin = {**now[-1], "identity": now[0]["identity"]}
    yield from ([], now[:1], now[::-1], now + now[:1], [*now[:-1], twin])
    for key, value in IDENTITIES:
        last = {**now[-1], "identity": {**now[-1]["identity"], key: value}}
        yield [*now[:-1], last]


def _shorter(now: Any) -> Iterator[Any]:
    """What is there now, cut off."""
    if isinstance(now, str | list):
        yield from (now[: len(now) // 2], now[:-1], now + now)
    if isinstance(now, dict) and "hex" in now:
        data = now["hex"]
        yield from ({"hex": data[:cut]} for cut in (2, 64, 128, 200, len(data) // 4 * 2, len(data) - 8))


def _records(now: Any) -> Iterator[Any]:
    """A typed record with one field at its extremes."""
    if not isinstance(now, dict):
        return
    for key, value in now.items():
        if isinstance(value, dict):
            yield from ({**now, key: inner} for inner in _records(value))
        elif isinstance(value, list):
            yield from ({**now, key: other} for other in ([], value[:1], value * 40))
        else:
            words = WORDS.get(key, EXTREMES.get(type(value), ()))
            yield from ({**now, key: other} for other in words)


def _documents(now: Any) -> Iterator[Any]:
    """A JSON document with one value in it replaced, dropped or cut off."""
    if not isinstance(now, dict):
        return
    for keys in leaves(now):
        at = value_at_keys(now, keys)
        for value in (*ANYTHING, *_shorter(at)):
            yield _replaced(now, keys, value)


def _replaced(at: Any, keys: Sequence[str], value: Any) -> Any:
    key: Any = int(keys[0]) if isinstance(at, list) else keys[0]
    copied = list(at) if isinstance(at, list) else dict(at)
    copied[key] = value if len(keys) == 1 else _replaced(copied[key], keys[1:], value)
    return copied


def value_at_keys(at: Any, keys: Sequence[str]) -> Any:
    """The value inside a JSON document that keys lead to."""
    for key in keys:
        at = at[int(key)] if isinstance(at, list) else at[key]
    return at


def leaves(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys of every value inside a JSON document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from leaves(item, (*keys, str(key)))
    if keys:
        yield keys
