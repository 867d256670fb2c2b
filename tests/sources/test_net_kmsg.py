"""The kernel log keeps what was said of each NIC, whatever storm another line makes."""

from __future__ import annotations

from agent.sources import KmsgRecord
from agent.sources.kmsg_records import PER_NIC_WORDING, KmsgLog

HEALTH = "mlx5_core 0000:5e:00.0: poll_health:815:(pid 0): device's health compromised - reached miss count"
REFUSED = "mlx5_core 0000:{bus}:00.0: mlx5_cmd_out_err:838:(pid {pid}): ACCESS_REG(0x805) op_mod(0x1) failed"


def test_a_storm_of_one_line_hides_no_other() -> None:
    log = KmsgLog()
    log.add(KmsgRecord(0, 10.0, 3, HEALTH))
    for i in range(1, 5000):
        bus = "5e" if i % 2 else "86"
        log.add(KmsgRecord(i, 10.0 + i, 3, REFUSED.format(bus=bus, pid=1000 + i)))
    kept = log.records()
    assert kept[0].text == HEALTH
    assert len(kept) == 1 + 2 * PER_NIC_WORDING


def test_any_number_of_wordings_is_bounded() -> None:
    log = KmsgLog()
    for i in range(4000):
        log.add(
            KmsgRecord(
                i, float(i), 3, f"mlx5_core 0000:5e:00.0: new words {chr(97 + i % 26) * (1 + i // 26 % 40)}"
            )
        )
    assert len(log.records()) <= 129 * PER_NIC_WORDING
