"""Where the replay nodes of the tests are."""

from __future__ import annotations

from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_PLACES = (_REPOSITORY / "tests" / "nodes", _REPOSITORY / "agent" / "demo_nodes")


def node_dir(name: str) -> Path:
    """The node folder of that name, among the tests' own and the demo's."""
    for place in _PLACES:
        if (place / name / "node.yaml").is_file():
            return place / name
    raise LookupError(f"there is no replay node {name}")


def profile_path(name: str) -> Path:
    """The profile of that node, or of a set-up of its engines (`h200-roce-two-engines`)."""
    for place in _PLACES:
        if (place / name / "profile.yaml").is_file():
            return place / name / "profile.yaml"
    raise LookupError(f"there is no profile {name}")


def scenario_path(node: str, name: str) -> Path:
    """A scenario of a node or of a set-up of its engines."""
    for place in _PLACES:
        if (place / node / "scenarios" / f"{name}.yaml").is_file():
            return place / node / "scenarios" / f"{name}.yaml"
    raise LookupError(f"{node} has no scenario {name}")
