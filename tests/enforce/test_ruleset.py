"""The table as text, and what the profile says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.enforce.ruleset import changes, permissions, removal, ruleset
from agent.errors import ConfigError
from agent.node_profile import NodeProfile
from agent.profile_loader import examine, load_profile

HEAD = """\
mode: manage
gpus: {count: 0}
nvlink: {links_per_gpu: 0}
fabric: {kind: none}
engines:
  b: {gpus: [], port: 8001}
  a: {gpus: [], port: 8000}
enforce:
  enabled: true
"""


def _profile(folder: Path, more: str = "", head: str = HEAD) -> NodeProfile:
    path = folder / "site.yaml"
    path.write_text(head + more)
    return load_profile(path).profile


def test_the_table(tmp_path: Path) -> None:
    allow = "  allow: [198.51.100.0/25, 198.51.100.128/25, 192.0.2.7, 198.51.100.9, '2001:db8::/32']\n"
    text = ruleset(_profile(tmp_path, f"  timeout_s: 2.5\n{allow}"), {8001: 2.5})
    assert text == (Path(__file__).with_name("ruleset.nft")).read_text()


def test_empty_sets_name_no_elements(tmp_path: Path) -> None:
    text = ruleset(_profile(tmp_path), {})
    assert text.count("elements") == 1
    assert text.startswith(removal())


def test_a_renewal_is_one_transaction_that_works_whether_the_element_is_there_or_not() -> None:
    assert changes([8000], [8001], 2.0).splitlines() == [
        "add chain inet nodegate engine",
        "add element inet nodegate open { 8000 timeout 2000ms }",
        "delete element inet nodegate open { 8000 }",
        "add element inet nodegate open { 8000 timeout 2000ms }",
        "add element inet nodegate open { 8001 timeout 2000ms }",
        "delete element inet nodegate open { 8001 }",
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("  allow: [198.51.100.9/24]\n", "its network is 198.51.100.0/24"),
        ("  allow: ['fe80::1%eth0']\n", "without a zone"),
        ("  allow: ['::ffff:192.0.2.7']\n", "write it as ipv4"),
        ("  allow: [prometheus]\n", "write an IP address"),
        ("  timeout_s: 2\n  period_s: 1\n", "less than three looks (1 s apart) fit into 2 s"),
        ("  timeout_s: 1\n", "greater"),
    ],
)
def test_what_is_refused(more: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(HEAD + more)
    (fault,) = examine(path).faults
    assert said in str(fault).lower() or said in str(fault)
    assert "site.yaml:10" in str(fault.where)


def test_mode_observe_would_close_for_good(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"site\.yaml:9: enforce\.enabled: mode observe opens no gate"):
        _profile(tmp_path, head=HEAD.replace("manage", "observe"))


def test_a_helper_that_nobody_watches_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(HEAD)
    assert any("nodegate-enforce.service: active" in note for note in examine(tmp_path / "site.yaml").notes)
    (tmp_path / "site.yaml").write_text(f"{HEAD}host: {{services: {{nodegate-enforce.service: active}}}}\n")
    assert not [note for note in examine(tmp_path / "site.yaml").notes if "enforce" in note]


def test_a_network_of_everybody_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(f"{HEAD}  allow: [0.0.0.0/0, 192.0.2.0/24]\n")
    assert [note for note in examine(tmp_path / "site.yaml").notes if "allow" in note] == [
        "enforce.allow has 0.0.0.0/0: all such addresses get through, whatever the gates say"
    ]


LISTED = """\
	set open {
		type inet_service
		flags timeout
		elements = { 8001 timeout 1h expires 59m59s988ms, 8002 timeout 10s expires 7s488ms,
			8003 timeout 2s500ms expires 4ms }
	}
	set allow4 {
		elements = { 192.0.2.7 }
"""


def test_what_a_helper_before_has_left_is_read() -> None:
    found = permissions(LISTED)
    assert found == {8001: pytest.approx(3599.988), 8002: pytest.approx(7.488), 8003: pytest.approx(0.004)}
    assert permissions("") == {}


def test_off_by_default(tmp_path: Path) -> None:
    plain: dict[str, Any] = _profile(tmp_path, head=HEAD.partition("enforce")[0]).enforce.model_dump()
    assert plain == {"enabled": False, "timeout_s": 10.0, "period_s": 0.5, "allow": []}
