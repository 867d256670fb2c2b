"""Orders that a text proposes, as they are typed for the daemon that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.commands import DEFAULT_RUN_DIR, typed_here


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("reopen with: nodegate gate resume glm --reason TEXT",) * 2,
        ("maintenance: entered; it holds until `nodegate maintenance exit`",) * 2,
        ("start it again with: nodegate engine start glm",) * 2,
        ("glm: draining", None),
        ("glm: the daemon of nodegate stops it", None),
    ],
)
def test_another_run_folder_is_named_in_each_order_and_the_default_is_not(
    line: str, typed: str | None
) -> None:
    assert typed_here(line, None) == typed_here(line, DEFAULT_RUN_DIR) == line
    there = typed_here(line, Path("/tmp/a b"))
    if typed is None:
        assert there == line
    else:
        assert there == f"{typed.removesuffix('`')} --run-dir '/tmp/a b'{'`' if typed.endswith('`') else ''}"
