"""SIMULATED NVML: the compiled library, its file, and NvmlProcess on top of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from nvml_lib import NvmlFile, build_library

from agent.sources.nvml import NvmlProcess

#: Far above any call of a healthy library, also on a busy machine.
PATIENT_S = 30.0


class TestClock:
    """A monotonic clock that a test moves."""

    __test__ = False

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def node(tmp_path: Path) -> NvmlFile:
    """An H200 node of eight GPUs whose calls take no time."""
    return NvmlFile(tmp_path / "nvml.txt")


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def start(node: NvmlFile, library: Path) -> Iterator[Callable[..., NvmlProcess]]:
    """Makes NvmlProcess objects on the node; closes them and checks that no child is left."""
    made: list[NvmlProcess] = []

    def make(**options: object) -> NvmlProcess:
        defaults = {
            "deadline_s": PATIENT_S,
            "start_deadline_s": PATIENT_S,
            "share_s": 0.0,  # a test changes the node and reads on at once
            "env": node.env(library),
        }
        made.append(NvmlProcess(**(defaults | options)))
        return made[-1]

    yield make
    for nvml in made:
        nvml.close()
    assert children() == []


#: Children that other tests of the same session have left: not ours to judge.
_others: set[int] = set()


@pytest.fixture(autouse=True)
def _know_the_others() -> None:
    _others.clear()
    _others.update(children())


@pytest.fixture
def nvml(start: Callable[..., NvmlProcess]) -> NvmlProcess:
    return start()


def children() -> list[int]:
    """PIDs of this process's children since the test began, zombies too."""
    return [child.pid for child in psutil.Process().children() if child.pid not in _others]


@pytest.fixture(name="children")
def children_fixture() -> Callable[[], list[int]]:
    return children
