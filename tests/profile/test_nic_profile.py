"""NV configuration in a profile: what its fabric contradicts is refused with one line."""

import pytest
from fake_h200 import h200_profile


@pytest.mark.parametrize(
    ("nic", "line"),
    [
        (
            {"config": {"LINK_TYPE_P1": "IB"}},
            "fabric.nic.config.LINK_TYPE_P1: LINK_TYPE_P1 is IB, the fabric is roce",
        ),
        ({"config": {"LINK_TYPE_P2": 1}}, "LINK_TYPE_P2 is 1, the fabric is roce; write ETH"),
        (
            {"config_by_board": {"MT_0000000838": {"ROCE_CC_PRIO_MASK_P1": 1}}},
            "fabric.nic.config_by_board.MT_0000000838.ROCE_CC_PRIO_MASK_P1: ROCE_CC_PRIO_MASK_P1 is 1: no",
        ),
        ({"config": {"link_type_p1": "ETH"}}, "String should match pattern"),
        ({"config": {"NUM_OF_VFS": -1}}, "greater than or equal to 0"),
        ({"config": {"NUM_OF_VFS": "8 9"}}, "String should match pattern"),
        ({"config_by_board": {"short": {"NUM_OF_VFS": 8}}}, "String should match pattern"),
        ({"rx_ring": 0}, "greater than or equal to 1"),
    ],
)
def test_what_is_refused(nic, line):
    with pytest.raises(ValueError) as told:
        h200_profile({"fabric": {"nic": nic}})
    assert line in str(told.value)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("roce", {"LINK_TYPE_P1": "ETH", "LINK_TYPE_P2": 2, "ROCE_CC_PRIO_MASK_P1": 255}),
        ("ib", {"LINK_TYPE_P1": "IB", "ROCE_CC_PRIO_MASK_P1": 0}),
        ("ib", {"LINK_TYPE_P1": 1}),
    ],
)
def test_what_fits(kind, config):
    assert (
        config.items()
        <= h200_profile({"fabric": {"kind": kind, "nic": {"config": config}}}).fabric.nic.config.items()
    )
