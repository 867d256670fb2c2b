"""Profiles for the profile tests: a good site file, and strategies that make more of them."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from agent.errors import ConfigError
from agent.profile_loader import examine

#: The machine may be busy with other things: no time limit for one example.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

GOOD = """\
platform: h200
mode: manage
driver_version: 580.10
gpus:
  power_limit_w: 700
fabric:
  ports:
    - {device: mlx5_0, netdev: eth2, rate_gbps: 400, gpu: 0, pci_bus_id: 0000:05:00.0}
engines:
  glm: {gpus: [0, 1, 2, 3], port: 8000, agent_check_port: 9471}
  kimi: {gpus: [4, 5, 6, 7], port: 8001}
"""


def write(folder: Path, text: str | bytes, name: str = "site.yaml") -> Path:
    """Write a profile file."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults(path: Path, *overlays: Path) -> list[ConfigError]:
    """All faults of a profile."""
    return list(examine(path, overlays=overlays).faults)


_words = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
#: Text without what YAML or the loader refuses in any spelling (control characters, surrogates).
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=30
)
_seconds = st.floats(0.001, 1e9, allow_nan=False)
_ports = st.lists(st.integers(1, 65535), unique=True, min_size=10, max_size=10)


@st.composite
def site_profiles(draw: st.DrawFn) -> dict[str, Any]:
    """A consistent site file as Python values."""
    ports = draw(_ports)
    names = draw(st.lists(_words, unique=True, max_size=3))
    slots = draw(st.permutations(range(8)))
    engines = {
        name: {
            "gpus": [slots[2 * i], slots[2 * i + 1]],
            "port": ports[1 + 2 * i],
            "agent_check_port": draw(st.one_of(st.none(), st.just(ports[2 + 2 * i]))),
            "start_deadline_s": draw(_seconds),
            "canary": {"prompt": draw(texts), "expect_text": draw(st.one_of(st.none(), texts))},
            "launch": {
                "args": draw(st.lists(texts, max_size=4)),
                "env": draw(st.dictionaries(texts, texts, max_size=3)),
                "model": draw(st.one_of(st.none(), texts)),
            },
        }
        for i, name in enumerate(names)
    }
    return {
        "platform": draw(st.sampled_from(["h200", "h20", "b300", "generic-8gpu"])),
        "node": draw(texts),
        "mode": draw(st.sampled_from(["observe", "gate", "manage"])),
        "driver_version": draw(st.one_of(st.none(), texts)),
        "gpus": {
            "model": draw(st.one_of(st.none(), texts)),
            "power_limit_w": draw(st.one_of(st.none(), st.floats(0.5, 5000))),
            "numa_node": draw(st.dictionaries(st.integers(0, 7).map(str), st.integers(0, 3), max_size=8)),
        },
        "fabric": {
            "kind": draw(st.sampled_from(["roce", "ib", "none"])),
            "ports": [
                {"device": f"mlx5_{i}", "netdev": f"eth{i}", "rate_gbps": draw(st.floats(1, 800)), "gpu": i}
                for i in range(draw(st.integers(1, 3)))
            ],
        },
        "engines": engines,
        "api": {"port": ports[0]},
    }
