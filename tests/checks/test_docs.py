"""docs/checks.md is what the code declares."""

from pathlib import Path

from agent.checks.registry import load_all
from agent.checks.xid_table import TABLE
from agent.checks_docs import checks_reference

COMMITTED = Path(__file__).parents[2] / "docs" / "checks.md"


def test_the_committed_reference_is_current() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == checks_reference(), (
        "run python -m agent.checks_docs > docs/checks.md"
    )


def test_it_has_every_check_limit_and_xid() -> None:
    text = checks_reference()
    for check in load_all().values():
        assert f"## `{check.id}`" in text
        assert all(f"| `{limit}` |" in text for limit in check.limits.model_fields)
    assert all(f"| {code} |" in text for code in TABLE)
    assert "(required)" not in text, "every limit has a default"
