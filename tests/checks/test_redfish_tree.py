"""Walking Redfish documents that cannot be trusted: circles, endless lists, dead links, wrong types."""

from collections.abc import Mapping
from typing import Any

import pytest

from agent.bmc_profile import RedfishEndpoint
from agent.checks.bmc_versions import at_least
from agent.checks.redfish_tree import MAX_DOCUMENTS, Service, health, in_use, link, number, said
from agent.errors import DeviceAbsent, ParseError, SourceError, SourceTimeout, SourceUnavailable

R = "/redfish/v1"


class Documents:
    """A Redfish source of a dict; a value that is an error is raised."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.asked: list[str] = []

    def get(self, name: str, endpoint: RedfishEndpoint, path: str) -> Mapping[str, Any]:
        self.asked.append(path)
        found = self.documents.get(path, DeviceAbsent(f"{path} is not there"))
        if isinstance(found, Exception):
            raise found
        return found


def _service(documents: dict[str, Any]) -> tuple[Service, Documents]:
    source = Documents(documents)
    return Service(source, "node", RedfishEndpoint(url="https://bmc.example"), "node"), source


def _to(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def test_a_list_is_read_over_its_pages_and_each_document_once() -> None:
    service, source = _service(
        {
            f"{R}/L": {"Members": [_to(f"{R}/a")], "Members@odata.nextLink": f"{R}/L?skip=1"},
            f"{R}/L?skip=1": {"Members": [_to(f"{R}/b"), {"@odata.id": f"{R}/c", "Id": "in full"}]},
            f"{R}/a": {"Id": "a"},
            f"{R}/b": {"Id": "b"},
        }
    )
    for _ in range(2):
        found = service.collection(f"{R}/L")
        assert [each["Id"] for each in found] == ["a", "b", "in full"]
    assert len(source.asked) == len(set(source.asked)) == 4


def test_no_list_has_no_members_and_a_list_of_dead_links_is_an_error() -> None:
    links = {f"{R}/L": {"Members": [_to(f"{R}/{n}") for n in range(9)]}}
    service, _ = _service(links)
    assert service.collection(f"{R}/none").documents == ()
    with pytest.raises(SourceUnavailable, match="many members"):
        service.collection(f"{R}/L")
    few, _ = _service({f"{R}/L": {"Members": [_to(f"{R}/1"), {}, _to(f"{R}/2")]}, f"{R}/2": {"Id": "2"}})
    found = few.collection(f"{R}/L")
    assert [each["Id"] for each in found] == ["2"]
    assert len(found.broken) == 2


@pytest.mark.parametrize(
    "document",
    [
        {"Members": [], "Members@odata.nextLink": f"{R}/L"},
        {"Members": [], "Members@odata.nextLink": 7},
        {"Members": "none"},
        {"Members": [1]},
        {"Members": {"0": {}}},
        {},
    ],
)
def test_what_is_no_list_is_an_error(document: dict[str, Any]) -> None:
    service, _ = _service({f"{R}/L": document})
    with pytest.raises(ParseError):
        service.collection(f"{R}/L")


def test_a_walk_ends() -> None:
    pages = {
        f"{R}/L{n}": {"Members": [], "Members@odata.nextLink": f"{R}/L{n + 1}"}
        for n in range(MAX_DOCUMENTS + 5)
    }
    service, source = _service(pages)
    with pytest.raises(SourceUnavailable, match=f"more than {MAX_DOCUMENTS} documents"):
        service.collection(f"{R}/L0")
    assert len(source.asked) == MAX_DOCUMENTS


def test_a_list_comes_in_one_answer_where_the_service_can_do_that() -> None:
    plain = {f"{R}/L": {"Members": [_to(f"{R}/a")]}, f"{R}/a": {"Id": "a"}}
    expand = {f"{R}/": {"ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": True}}}}
    in_one = {f"{R}/L?$expand=.($levels=1)": {"Members": [{"@odata.id": f"{R}/a", "Id": "a"}]}}
    for documents, count in ((plain | expand | in_one, 2), (plain, 3), (plain | expand, 4)):
        service, source = _service(documents)
        assert [each["Id"] for each in service.collection(f"{R}/L", expand=True)] == ["a"]
        assert len(source.asked) == count, source.asked


def test_an_offered_link_that_leads_nowhere_offers_nothing_but_a_late_one_is_late() -> None:
    service, _ = _service({f"{R}/late": SourceTimeout("late")})
    owner = {"A": _to(f"{R}/none"), "B": _to(f"{R}/late"), "C": {"@odata.id": 7}, "D": 7}
    assert service.offered(owner, "A") is None
    assert service.offered(owner, "Z") is None
    for key in ("B", "C", "D"):
        with pytest.raises(SourceError):
            service.offered(owner, key)
    with pytest.raises(DeviceAbsent):
        service.follow(owner, "A")


def test_links_lose_their_fragment() -> None:
    assert link({"X": _to(f"{R}/Chassis/1/Thermal#/Fans/0")}, "X") == f"{R}/Chassis/1/Thermal"


@pytest.mark.parametrize("value", ["21", True, float("nan"), float("inf"), 10**400, [21], {"Reading": "x"}])
def test_only_a_finite_number_is_one(value: Any) -> None:
    with pytest.raises(ParseError):
        number({"T": value}, "T")


def test_readings_and_states() -> None:
    assert number({"T": {"Reading": 21.5}}, "T") == 21.5
    assert number({"T": 21}, "T") == 21.0
    assert number({"T": {"Reading": None}}, "T") is None
    assert number({}, "T") is None
    assert health({"Status": {"Health": "OK", "HealthRollup": "Critical"}}) == "Critical"
    assert health({"Status": {}}) is None
    assert not in_use({"Status": {"State": "Absent"}})
    assert in_use({})
    with pytest.raises(ParseError):
        health({"Status": {"Health": 3}})


def test_words_of_a_bmc_are_made_fit_for_one_line() -> None:
    assert said("a\n\tb\x1b[31m c\u2028d") == "a b [31m c d"
    assert len(said("x" * 500)) == 48


@pytest.mark.parametrize(
    ("have", "minimum", "enough"),
    [
        ("96.10.6D.00.01", "96.10.6D", True),
        ("96.10.6D.00.01", "96.10.6d.00.01", True),
        ("96.10.6D.00.01", "96.10.6E", False),
        ("96.10.A0", "96.10.6D", True),
        ("96.10", "96.10.6D", False),
        ("96.10", "96.10.00", True),
        ("40.48.1000 (NVD0000000072)", "40.48.1000", True),
        ("40.48.998", "40.48.1000", False),
        ("2.19.1", "2.3.0", True),
        ("v1.10", "1.9", True),
        ("7.00.00.171", "7.00.00.171", True),
        ("GB200Nvl-25.06-A", "GB200Nvl-25.06-9", True),
        ("GB200Nvl-25.06", "GB200Nvl-25.10", False),
        ("HGX-22.10-1-rc67", "HGX-22.10-1-rc44", True),
        ("HGX-22.10-1-rc4", "HGX-22.10-1-rc44", False),
        ("R05_F04", "R05_F03", True),
    ],
)
def test_versions(have: str, minimum: str, enough: bool) -> None:
    assert at_least(have, minimum) is enough


@pytest.mark.parametrize(
    ("have", "minimum"),
    [
        ("1.2.0-rc1", "1.2.0"),
        ("1.2.0", "1.2.0-rc1"),
        ("GB200Nvl-25.06", "25.06"),
        ("1.2.x", "1.2.3"),
        ("unknown", "1.2"),
        ("N/A", "1.2"),
        ("", "1.2"),
    ],
)
def test_versions_that_cannot_be_compared(have: str, minimum: str) -> None:
    with pytest.raises(ParseError):
        at_least(have, minimum)
