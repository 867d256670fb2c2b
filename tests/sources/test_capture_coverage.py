"""A capture holds what the checks read: run them all on the healthy test nodes and compare."""

from __future__ import annotations

import re

import pytest
from property_nodes import Variant, healthy, variants

from agent.checks.registry import load_all
from agent.sources.capture import engine_packages
from agent.sources.capture_files import record_files
from agent.sources.capture_host import record_bmc, record_host

CHECKS = load_all()
#: Of processes: a capture is of a node, not of what ran on it at that moment.
OF_PROCESSES = re.compile(r"^proc/\d+/")


def reads_of(variant: Variant, kind: str) -> set[str]:
    """Paths of a kind that the checks read and that are there."""
    found = {path for check in CHECKS.values() for path in healthy(check, variant)[1]}
    return {path.removeprefix(kind) for path in found if path.startswith(kind)}


@pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.name)
def test_files_and_links(variant: Variant) -> None:
    node = variant.node()
    named = [path.lstrip("/") for path in (variant.profile.topology.nccl_file,) if path is not None]
    named += engine_packages(node.sources, variant.profile)
    recording = record_files(node.sources.tree, variant.profile.host.sysctl, named)
    files = {path for path in reads_of(variant, "files:") if path in variant.data["files"]}
    links = {path for path in reads_of(variant, "links:") if path in variant.data["links"]}
    # An interface without a device is none of the machine's, and the fake node's have none.
    others = ("sys/class/net/",) if variant.name.startswith("fake") else ()
    missing = {
        path
        for path in files - recording.files.keys()
        if not OF_PROCESSES.match(path) and not path.startswith(others)
    }
    assert sorted(missing) == []
    assert sorted(links - recording.links.keys()) == []
    assert len(files) > 100


@pytest.mark.parametrize("variant", variants(), ids=lambda variant: variant.name)
def test_host_and_redfish(variant: Variant) -> None:
    sources = variant.node().sources
    host = record_host(sources, variant.profile, 0.0)
    wanted = {path for path in reads_of(variant, "host.") if path != "clock"}
    named = {tuple(path.split(".", 1)) for path in wanted}
    there = {(part, name) for part, name in named if name in variant.data["host"].get(part, {})}
    assert sorted((part, name) for part, name in there if name not in host[part]) == []
    bmc = record_bmc(sources, variant.profile, []) or {}
    read = {tuple(path.split(".", 1)) for path in reads_of(variant, "bmc.")}
    known = {(name, path) for name, path in read if path in variant.data["bmc"].get(name, {})}
    assert sorted((name, path) for name, path in known if path not in bmc[name]) == []
