"""Secrets of a node, found by value and by form in any stream of bytes, and taken out.

By value: every line and value of the files that the profile names for secrets, of the folders of credentials,
and what flags and variables of the engines hold. By form: private keys, tokens of known makers, passwords in
addresses, and what stands behind a name such as `password` or `api_key`.
"""

from __future__ import annotations

import base64
import errno
import html
import json
import os
import re
import stat
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.launch.engine_argv import given_arguments
from agent.launch.secret_words import secret_values
from agent.node_profile import NodeProfile
from agent.secret_path import PREFIX

HIDDEN = b"(secret)"
#: Where credentials of units lie; systemd hands them to nobody else, but root can read them here.
CREDENTIAL_FOLDERS = (Path("/etc/nodegate/credentials"), Path("/etc/nodegate/engine-credentials"))
_MOST_FILE_BYTES = 64 * 1024
_SHORTEST = 4
_SHORTEST_NUMBER = 8
#: Bytes; the base64 of less, amid other base64, would be found where it is not.
_SHORTEST_INSIDE = 8
#: Settings beside the secrets in an env_file; to blot these out would spoil every log and help nobody.
_ORDINARY = frozenset(
    "true false none null auto info debug warn warning error default on off yes no spawn fork cuda".split()  # noqa: SIM905
)
_PAIR = re.compile(r"^(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*(?:=|:\s)\s*(?P<value>.+)$")
_NAMES = rb"(?i:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|_token)"
_NAMED = (b"passw", b"passphrase", b"secret", b"api", b"access", b"token")
#: (what a line has in it in small letters if the form may be there, the form); its first group stays.
_FORMS = tuple(
    (triggers, re.compile(pattern))
    for triggers, pattern in (
        ((b"_", b"-"), rb"()\b(?:hf|sk|ghp|gho|ghs|nvapi|glpat|xox[abp])[-_][A-Za-z0-9_-]{16,}"),
        ((b"eyj",), rb"()\beyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        ((b"://",), rb"(://)[^/\s:@\"']{1,256}:[^/\s\"']{1,256}(?=@)"),
        (
            (b"authorization", b"x-auth-token", b"x-api-key"),
            rb"((?i:authorization|x-auth-token|x-api-key)\\?[\"']?\s*[:=]\s*\\?[\"']?(?:(?i:bearer|basic)\s+)?)"
            # All of the line that may be of the header: a scheme is any word.
            rb"(?!\(secret\))[^\"'\\}\r\n]{4,}",
        ),
        (
            (b"--",),
            rb"(--(?i:[a-z-]{0,30}(?:key|token|password|secret))[\"']?(?:=|,?\s+)[\"']?)(?!-)[^\s\"',}\]]{4,}",
        ),
        (
            _NAMED,
            rb"(" + _NAMES.replace(b"_token", b"token") + rb"\\?[\"']?[ \t]*[:=][ \t]*(\\?[\"']))"
            rb"(?!\(secret\))(?:(?!\2)(?:\\[^\n]|[^\\\n])){1,4096}",
        ),
        (
            _NAMED,
            rb"(" + _NAMES + rb"[\"']?[ \t]*[:=][ \t]*)"
            rb"(?!null\b|true\b|false\b|none\b|\(secret\)|-?[\d.]+\b)(?:[^\s\"'\\,;\[\]{}()]|(?<=\w)[\"',;](?=\w)){4,}",
        ),
    )
)
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,20000}?-----END [A-Z ]{0,40}PRIVATE KEY-----", re.DOTALL
)
#: More than any secret is long that goes over several lines.
LONGEST_SECRET_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Known:
    """Secrets by value, and the files of secrets that could not be read: (file, why)."""

    values: tuple[str, ...]
    unread: tuple[tuple[str, str], ...]


def known_secrets(profile: NodeProfile | None, folders: Iterable[Path] = CREDENTIAL_FOLDERS) -> Known:
    """Every secret of a node; reads the files, whoever may read them besides. Shows nothing of them."""
    values: list[str] = []
    unread: list[tuple[str, str]] = []
    named = list(_named_files(profile)) if profile is not None else []
    in_folders, closed = _files_of(folders)
    unread += closed
    for text in dict.fromkeys([*named, *map(str, in_folders)]):
        try:
            for path in _places(text, folders):
                values += _values_of(_read(path))
        except OSError as cause:
            # A file that is not there yet holds nothing that could have got anywhere.
            if not isinstance(cause, FileNotFoundError):
                unread.append((text, cause.strerror or str(cause)))
    for engine in profile.engines.values() if profile is not None else ():
        values += secret_values(given_arguments(engine), engine.launch.env)
    return Known(tuple(dict.fromkeys(value for value in values if _worth(value))), tuple(unread))


def _named_files(profile: NodeProfile) -> Iterator[str]:
    endpoints = [profile.bmc.redfish, *profile.bmc.cooling.units.values(), *profile.bmc.pdus.values()]
    yield from (each.credentials_file for each in endpoints if each and each.credentials_file)
    for engine in profile.engines.values():
        if engine.launch.env_file:
            yield engine.launch.env_file
        if engine.group is not None:
            yield engine.group.key_file


def _files_of(folders: Iterable[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    found: list[Path] = []
    closed = []
    for folder in folders:
        try:
            found += sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as cause:
            closed.append((str(folder), cause.strerror or str(cause)))
    return found, closed


def _places(text: str, folders: Iterable[Path]) -> list[Path]:
    """The file, or all files that a credential of this name may be."""
    if not text.startswith(PREFIX):
        return [Path(text)]
    name = text.removeprefix(PREFIX)
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    places = [folder / name for folder in (*folders, *([Path(given)] if given else []))]
    return [place for place in places if place.exists()]


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        data = os.read(descriptor, _MOST_FILE_BYTES + 1)
        if len(data) > _MOST_FILE_BYTES:
            raise OSError(errno.EFBIG, f"is larger than {_MOST_FILE_BYTES // 1024} KiB")
        return data.decode("utf-8", errors="surrogateescape")
    finally:
        os.close(descriptor)


def _values_of(text: str) -> Iterator[str]:
    """Values of `KEY=VALUE` and `key: value` lines; a line that is neither is a secret as a whole."""
    pairs: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        pair = _PAIR.match(line)
        if pair is None or not pair["value"].strip("="):  # a key in base64 ends in one or two of them
            yield line
            continue
        value = pair["value"].strip()
        bare = value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"" else value
        pairs[pair["name"].lower()] = bare
        # Who logs in is told in every log of a BMC, and is a word such as `root`.
        if pair["name"].lower() not in ("username", "user"):
            yield bare
    if {"username", "password"} <= set(pairs):
        yield base64.b64encode(
            f"{pairs['username']}:{pairs['password']}".encode(errors="surrogateescape")
        ).decode()


def _worth(value: str) -> bool:
    """Whether to look for a value: no ordinary word or small number, which stand everywhere."""
    if len(value) < _SHORTEST or value.lower() in _ORDINARY:
        return False
    return not (value.isdigit() and len(value) < _SHORTEST_NUMBER)


class SecretSearch:
    """Takes secrets out of bytes."""

    def __init__(self, known: Known) -> None:
        """Look for these values, in each form that a file may have them in."""
        forms = {form for value in known.values for form in _forms(value)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile(b"|".join(map(re.escape, longest_first))) if forms else None

    def mask(self, data: bytes) -> tuple[bytes, int]:
        """The data without secrets, and how many were in it."""
        count = 0
        if self._known is not None:
            data, count = self._known.subn(HIDDEN, data)
        data, keys = _PRIVATE_KEY.subn(HIDDEN, data)
        count += keys
        for triggers, form in _FORMS:
            data, more = _masked_lines(data, triggers, form)
            count += more
        return data, count

    def has_known(self, data: bytes) -> bool:
        """Whether a value that is known still stands in it."""
        return self._known is not None and self._known.search(data) is not None


def _masked_lines(data: bytes, triggers: Sequence[bytes], form: re.Pattern[bytes]) -> tuple[bytes, int]:
    """The data with a form masked; only lines that a trigger is in are looked at: logs are long."""
    small = data.lower()
    if not any(trigger in small for trigger in triggers):
        return data, 0
    count, lines = 0, data.split(b"\n")
    for index, line in enumerate(small.split(b"\n")):
        if any(trigger in line for trigger in triggers):
            lines[index], more = form.subn(rb"\1" + HIDDEN, lines[index])
            count += more
    return (b"\n".join(lines), count) if count else (data, 0)


def _forms(value: str) -> Iterator[bytes]:
    """A value as it may stand in text, JSON, YAML, Python, HTML, an address, base64 and hexadecimal."""
    raw = value.encode("utf-8", errors="surrogateescape")
    yield raw
    text = raw.decode("utf-8", errors="replace")
    in_element = html.escape(text, quote=False)
    for escaped in (
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(text)[1:-1])[1:-1],
        text.replace("'", "''"),
        repr(text)[1:-1],
        in_element,
        in_element.replace('"', "&quot;"),
        html.escape(text),
        in_element.replace('"', "&#34;").replace("'", "&#39;"),
        urllib.parse.quote(text),
        urllib.parse.quote(text, safe=""),
        urllib.parse.quote_plus(text),
        raw.hex(),
        raw.hex().upper(),
        *_in_base64(raw),
    ):
        yield escaped.encode("utf-8", errors="replace")


def _in_base64(raw: bytes) -> Iterator[str]:
    """The value alone, and what of it does not change with what stands before and after it."""
    yield base64.b64encode(raw).decode().rstrip("=")
    if len(raw) < _SHORTEST_INSIDE:
        return
    for before in range(3):
        whole = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        first = (0, 2, 3)[before]
        last = len(whole) - (1 if (before + len(raw)) % 3 else 0)
        inside = whole[first:last]
        yield inside
        yield inside.replace("+", "-").replace("/", "_")
