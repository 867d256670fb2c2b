"""NV configuration parameters of the stand-in ConnectX-7: kind, default, and what a fresh host was left with.

Names, kinds and defaults are those of `mlxconfig -e query` and `show_confs`; ranges are narrowed to what is
asked for. A fresh host differs from the defaults: an earlier owner's settings are the usual finding.
"""

from __future__ import annotations

from typing import Any

#: Words of an enumeration by number.
LINK_TYPE = {1: "IB", 2: "ETH", 3: "VPI"}
WR_ORDERING = {0: "per_mkey", 1: "force_relax"}
BOOL = {0: "False", 1: "True"}

#: name: (words or None for a number, lowest, highest, default, what a fresh host has)
PARAMETERS: dict[str, tuple[dict[int, str] | None, int, int, int, int]] = {
    "MEMIC_BAR_SIZE": (None, 0, 8, 0, 0),
    "NUM_OF_PF": (None, 1, 4, 1, 1),
    "NUM_OF_VFS": (None, 0, 127, 16, 8),
    "SRIOV_EN": (BOOL, 0, 1, 1, 1),
    "ATS_ENABLED": (BOOL, 0, 1, 0, 1),
    "PCI_WR_ORDERING": (WR_ORDERING, 0, 1, 0, 1),
    "ADVANCED_PCI_SETTINGS": (BOOL, 0, 1, 0, 1),
    "MAX_ACC_OUT_READ": (None, 0, 128, 0, 32),
    "LINK_TYPE_P1": (LINK_TYPE, 1, 3, 1, 2),
    "ROCE_CC_PRIO_MASK_P1": (None, 0, 255, 255, 0),
    "CNP_DSCP_P1": (None, 0, 63, 48, 4),
    "CNP_802P_PRIO_P1": (None, 0, 7, 6, 5),
    "CLAMP_TGT_RATE_P1": (BOOL, 0, 1, 0, 0),
    "ROCE_ADAPTIVE_ROUTING_EN": (BOOL, 0, 1, 0, 0),
    "ROCE_RTT_RESP_DSCP_P1": (None, 0, 63, 0, 0),
    "TX_SCHEDULER_LOCALITY_MODE": ({0: "DEVICE_DEFAULT", 1: "STATIC_MODE", 2: "ACCUMULATIVE"}, 0, 2, 0, 0),
    "KEEP_ETH_LINK_UP_P1": (BOOL, 0, 1, 1, 1),
    "KEEP_IB_LINK_UP_P1": (BOOL, 0, 1, 0, 0),
    "KEEP_LINK_UP_ON_BOOT_P1": (BOOL, 0, 1, 0, 0),
    "LLDP_NB_DCBX_P1": (BOOL, 0, 1, 0, 1),
    "LLDP_NB_RX_MODE_P1": ({0: "OFF", 1: "ALL"}, 0, 1, 0, 1),
    "LLDP_NB_TX_MODE_P1": ({0: "OFF", 1: "ALL"}, 0, 1, 0, 1),
    "DCBX_IEEE_P1": (BOOL, 0, 1, 1, 1),
    "DCBX_CEE_P1": (BOOL, 0, 1, 1, 1),
    "DCBX_WILLING_P1": (BOOL, 0, 1, 1, 1),
    "PF_LOG_BAR_SIZE": (None, 0, 63, 5, 5),
}


def shown(name: str, number: int) -> str:
    """A value as mlxconfig prints it: `True(1)`, `ETH(2)`, `48`."""
    words = PARAMETERS[name][0]
    return f"{words[number]}({number})" if words and number in words else str(number)


def parsed(name: str, text: str) -> int | None:
    """A value as it may be given: `1`, `True`, `ETH`, `0x30`; None for one that does not fit."""
    words, lowest, highest, _default, _fresh = PARAMETERS[name]
    for number, word in (words or {}).items():
        if text.lower() == word.lower():
            return number
    try:
        number = int(text, 0)
    except ValueError:
        return None
    return number if lowest <= number <= highest else None


def fresh() -> dict[str, dict[str, Any]]:
    """What a host starts with: current and next values of every parameter."""
    return {name: {"current": row[4], "next": row[4]} for name, row in PARAMETERS.items()}
