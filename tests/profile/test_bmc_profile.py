"""What the BMC part of a profile refuses, and what it points out."""

import pytest
from fake_h200 import h200_profile_data

from agent.bmc_profile import RedfishEndpoint, plain_http_problem
from agent.node_profile import NodeProfile
from agent.profile_rules import notes


def _notes(bmc: dict) -> list[str]:
    return list(notes(NodeProfile.model_validate({**h200_profile_data(), "bmc": bmc})))


@pytest.mark.parametrize(
    ("bmc", "key"),
    [
        ({"bios": {"A": 1}}, "bmc.bios is set"),
        ({"firmware": {"A": "1"}}, "bmc.firmware is set"),
        ({"cooling": {"flow_min_l_per_min": 5}}, "bmc.cooling.flow_min_l_per_min is set"),
    ],
)
def test_numbers_that_nobody_is_asked_for_are_pointed_out(bmc: dict, key: str) -> None:
    (note,) = _notes(bmc)
    assert note.startswith(key)
    assert _notes({**bmc, "redfish": {"url": "https://bmc.example"}}) == []
    assert _notes({}) == []


def test_unverified_tls_is_pointed_out() -> None:
    lax = {"url": "https://bmc.example", "tls_verify": False}
    found = _notes({"redfish": lax, "pdus": {"a": lax}})
    assert [note.partition(" ")[0] for note in found] == ["bmc.redfish.tls_verify", "bmc.pdus.a.tls_verify"]


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://bmc.example", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost", True),
        ("http://127.0.0.1.evil.example", False),
        ("http://10.0.0.1", False),
        ("http://localhost.evil.example", False),
    ],
)
def test_only_this_machine_may_be_asked_in_the_clear(url: str, allowed: bool) -> None:
    endpoint = RedfishEndpoint.model_construct(url=url, credentials_file="f", tls_verify=True)
    assert (plain_http_problem(endpoint) is None) is allowed
