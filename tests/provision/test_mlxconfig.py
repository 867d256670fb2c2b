"""NV configuration: what mlxconfig prints, and when two values are the same."""

import pytest
from nodegate_apply.host import HostError
from nodegate_apply.mlxconfig import Stage, as_text, parse_query, same_value

from agent.checks import nic_record

#: As a ConnectX-7 and the tests of NVIDIA's own operator have it.
QUERY = """
Device #1:
----------

Device type:        ConnectX7
Name:               MCX75310AAS-NEA_Ax
Description:        NVIDIA ConnectX-7 HHHL Adapter card; 400GbE / NDR IB (default mode); Single-port OSFP
Device:             0000:06:00.0

Configurations:                                          Default             Current             Next Boot
        MEMIC_BAR_SIZE                              0                   0                   0
*       KEEP_IB_LINK_UP_P2                          False(0)            True(1)             True(1)
        ESWITCH_HAIRPIN_DESCRIPTORS                 Array[0..7]         Array[0..7]         Array[0..7]
*       MEMIC_SIZE_LIMIT                            _256KB(1)           _256KB(1)           DISABLED(0)
RO      SAFE_MODE_THRESHOLD                         10                  10                  10
*       LINK_TYPE_P1                                IB(1)               IB(1)               ETH(2)
        MULTI_PORT_VHCA_EN                          False(0)            False(0)            False(0)
        PF_NUM_PF_MSIX                              0x3f                63                  63
The '*' shows parameters with next value different from default/current value.
"""


def test_query():
    table = parse_query(QUERY)
    assert table["LINK_TYPE_P1"] == Stage("IB(1)", "IB(1)", "ETH(2)")
    assert table["MEMIC_SIZE_LIMIT"].next == "DISABLED(0)" and table["SAFE_MODE_THRESHOLD"].current == "10"
    assert set(table) >= {"MEMIC_BAR_SIZE", "KEEP_IB_LINK_UP_P2", "ESWITCH_HAIRPIN_DESCRIPTORS"}
    assert len(table) == 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-E- Failed to open the device",
        "Configurations:            Next Boot\n   SRIOV_EN     True(1)\n",  # MFT before it had columns
        "Configurations:   Default   Current   Next Boot\n",
    ],
)
def test_what_is_no_query(text):
    with pytest.raises(HostError, match="mlxconfig: "):
        parse_query(text)


@pytest.mark.parametrize(
    ("seen", "want", "same"),
    [
        ("ETH(2)", "ETH", True), ("ETH(2)", "eth", True), ("ETH(2)", "2", True), ("ETH(2)", "IB", False),
        ("ETH(2)", "1", False), ("True(1)", as_text(True), True), ("True(1)", as_text(False), False),
        ("True(1)", as_text(1), True), ("False(0)", as_text(False), True), ("8", as_text(8), True),
        ("8", as_text(16), False), ("0x10", as_text(16), True), ("16", "0x10", True), ("255", "0xff", True),
        ("_256KB(1)", "256KB", True), ("DEVICE_DEFAULT(0)", "DEVICE_DEFAULT", True),
        ("DISABLED(0)", as_text(False), True), ("N/A", "8", False), ("Array[0..7]", "1", False),
    ],
)  # fmt: skip
def test_values(seen, want, same):
    assert same_value(seen, want) is same
    assert nic_record.same_value(seen, want) is same, "the agent's check compares as the role does"
