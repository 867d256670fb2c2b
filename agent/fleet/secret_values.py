"""Secrets that a run may come across, so that none is written or shown: by their values and by their names.

Tasks with secrets have `no_log`; this is the second line, for what a module or a device repeats in an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import ConfigError

HIDDEN = "(secret)"
#: Names of variables, settings and arguments whose values are shown nowhere.
_NAME = re.compile(
    r"password|passwd|passphrase|secret|token|credential|(?:^|_)pass$|(?:^|_)(?:api|private|access)_?key$",
    re.IGNORECASE,
)
#: Variables of the inventory that hold texts of secret files, by the name of whom they are for.
_TEXTS = frozenset({"nodegate_group_keys", "nodegate_engine_env", "nodegate_pdu_credentials"})
_PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?P<sign>=|:\s)\s*(?P<value>.+)")
#: Shorter ones would be found in the middle of harmless words.
_SHORTEST = 4


def is_secret_name(name: str) -> bool:
    """Whether the value of this name is secret; a file or a folder that holds one is none."""
    return _NAME.search(name) is not None and not name.lower().endswith(("_file", "_dir", "_path", "_url"))


class Redactor:
    """Takes known secrets out of text, and values with a secret's name out of data."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Know these secrets."""
        # In JSON (the artifacts) and in YAML (Ansible's own output) a value may stand escaped or doubled.
        known = {form for value in values if len(value) >= _SHORTEST for form in _forms(value)}
        words = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    def text(self, text: str) -> str:
        """The text without known secrets."""
        return self._known.sub(HIDDEN, text) if self._known else text

    def data(self, value: Any) -> Any:
        """Plain data without known secrets and without what a name calls secret."""
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): HIDDEN if item and is_secret_name(str(key)) else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return self.text(value) if isinstance(value, str) else value


def _forms(value: str) -> tuple[str, ...]:
    return (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        value.replace("'", "''"),
    )


def named_secrets(values: Mapping[str, Any]) -> Iterator[str]:
    """The values in plain data, at any depth, whose names call them secret."""
    for name, value in values.items():
        if name in _TEXTS:
            yield from _of_texts(value)
        elif isinstance(value, Mapping):
            yield from named_secrets(value)
        elif is_secret_name(str(name)) and isinstance(value, str | int) and value:
            yield str(value)


def _of_texts(texts: Any) -> Iterator[str]:
    """Secrets in texts of files, by engine or PDU: each line (a key may look like a pair), and its value."""
    for text in texts.values() if isinstance(texts, Mapping) else ():
        for line in map(str.strip, str(text).splitlines()):
            yield line
            pair = _PAIR.match(line)
            if pair is not None and (pair["sign"] == "=" or is_secret_name(pair["name"])):
                yield pair["value"].strip("\"'")


def vault_secrets(sites: Sequence[Path], key: Path | None) -> Iterator[str]:
    """Secrets in the encrypted files of inventories; what cannot be opened is left to Ansible to refuse."""
    if key is None:
        return
    from ansible.errors import AnsibleError
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import get_file_vault_secret

    loader = DataLoader()
    try:
        secret = get_file_vault_secret(filename=str(key), loader=loader)
        secret.load()
        loader.set_vault_secrets([("default", secret)])
    except AnsibleError:
        return
    for file in _encrypted(sites):
        try:
            values = loader.load_from_file(str(file))
        except AnsibleError:
            continue
        if isinstance(values, Mapping):
            yield from named_secrets(values)


def refuse_plain_vaults(sites: Sequence[Path]) -> None:
    """A vault that lies open is in every copy of the inventory, and nothing hides its values. ConfigError."""
    for file in _variables(sites):
        whole = file.read_bytes()
        named = file.suffix in (".yml", ".yaml") and "vault" in file.stem
        if named and whole.strip() and b"$ANSIBLE_VAULT" not in whole:
            remedy = f"ansible-vault encrypt {file}, and change what it held if anybody else could read it"
            raise ConfigError("this vault is not encrypted", where=str(file), remedy=remedy)


def _encrypted(sites: Sequence[Path]) -> Iterator[Path]:
    return (file for file in _variables(sites) if file.read_bytes().startswith(b"$ANSIBLE_VAULT"))


def _variables(sites: Sequence[Path]) -> Iterator[Path]:
    """Files of variables beside the inventories."""
    for site in sites:
        for folder in ("group_vars", "host_vars"):
            yield from (file for file in sorted((site / folder).rglob("*")) if file.is_file())
