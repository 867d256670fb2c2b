"""A recorded topology as YAML for a profile, or as a profile layer of its own."""

from __future__ import annotations

from collections.abc import Iterator

from agent.node_parts import ExpectedTopology
from agent.profile_render import flow

_HEAD = (
    "# The topology of {}, as it was when this was recorded.",
    "# Look it over against the vendor's drawing before it goes into the profile: from then on it is what",
    "# every start of the node is compared with.",
)


def snippet(expected: ExpectedTopology, origin: str) -> str:
    """YAML that loads as a layer of a profile; a line for each card."""
    lines = [line.format(origin) for line in _HEAD]
    return "\n".join([*lines, *_body(expected)]) + "\n"


def _body(expected: ExpectedTopology) -> Iterator[str]:
    yield "topology:"
    yield "  expected:"
    yield "    gpus:" if expected.gpus else "    gpus: {}"
    for slot, gpu in expected.gpus.items():
        yield f"      {slot}: {flow(gpu.model_dump(mode='json', exclude_none=True))}"
    yield "    nics:" if expected.nics else "    nics: []"
    for nic in expected.nics:
        yield f"      - {flow(nic.model_dump(mode='json', exclude_none=True))}"
