"""The explanation of a result in a few calm lines for people, from the JSON that all commands share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MANY = 1
_WORDS = {"closes": "closes", "degrades": "degrades", "blocks_admission": "keeps closed until it is mended:"}
#: A closed gate asks for more than one that serves.
_SHUT = "; a gate that is closed stays closed"
_CLEARS = {
    "reboot": "a reboot",
    "reset": "a reset that its check sees",
    "operator": "`nodegate gate clear`",
}


def explanation(entry: Mapping[str, Any]) -> list[str]:
    """The lines under a finding: expectation and its origin, how often, what it does, what ends it."""
    lines = [_expected(entry), _times(entry), what_it_does(entry), _cleared(entry)]
    return [line for line in lines if line]


def flags(entry: Mapping[str, Any]) -> str:
    """`(shadow)`, `(waived)`, both or nothing."""
    words = [word for word in ("shadow", "waived") if entry.get(word)]
    return f"({', '.join(words)})" if words else ""


def _expected(entry: Mapping[str, Any]) -> str:
    origin = entry.get("expected_from")
    if entry.get("expected") is None:
        return f"judged by {origin}" if origin else ""
    wanted = f"expected {_value(entry['expected'], entry.get('unit', ''))}"
    return f"{wanted}, from {origin}" if origin else wanted


def _value(value: object, unit: str) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{text} {unit}".rstrip()


def _times(entry: Mapping[str, Any]) -> str:
    times = entry.get("times") or 0
    return f"confirmed {times} times on this boot" if times > _MANY else ""


def what_it_does(entry: Mapping[str, Any]) -> str:
    """To which engines it does what; a shadow or a waived verdict says why it does nothing."""
    if entry.get("shadow"):
        return "shadow: the profile lets this check gate nothing"
    if entry.get("waived"):
        return "waived: it does not count"
    engines: Sequence[Mapping[str, Any]] = entry.get("engines") or ()
    said = []
    for effect, words in _WORDS.items():
        those = [each for each in engines if each["effect"] == effect]
        if those:
            also = effect == "degrades" and any(each.get("blocks_admission") for each in those)
            named = ", ".join(each["engine"] for each in those)
            said.append(f"{words} {named}{_SHUT if also else ''}")
    return "; ".join(said) if said else ("gates nothing" if engines else "")


def _cleared(entry: Mapping[str, Any]) -> str:
    cleared = entry.get("cleared_by") or ()
    return f"stays until {' or '.join(_CLEARS.get(each, each) for each in cleared)}" if cleared else ""
