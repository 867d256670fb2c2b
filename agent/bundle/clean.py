"""What every piece goes through before it may be in a bundle: secrets, prompts, and on request identities."""

from __future__ import annotations

import json
import re
from typing import Any

from agent.bundle.identities import redacted
from agent.bundle.parts import Piece, as_json
from agent.bundle.prompts import PROMPT_KEYS, without_prompts
from agent.bundle.secret_search import SecretSearch
from agent.sources.redact import Redactor

#: What a name in the archive may not have in it.
_ODD = re.compile(r"[^\w./@+-]", re.ASCII)


class Cleaner:
    """Cleans pieces and counts what it took out."""

    def __init__(self, search: SecretSearch, redactor: Redactor | None = None) -> None:
        """`redactor` replaces what identifies a machine; None leaves it."""
        self._search = search
        self._redactor = redactor
        self.secrets = 0
        self.prompt_lines = 0

    def piece(self, piece: Piece) -> Piece | None:
        """The piece as it may be shown; None if a secret could not be taken out of it."""
        data = piece.data
        if piece.prompts:
            data = self._without_prompts(piece, data)
        data, count = self._search.mask(data)
        if piece.margin_bytes:
            data = data[piece.margin_bytes :].partition(b"\n")[2]
        if self._redactor is not None:
            data = redacted(piece.path, data, self._redactor)
        if self._search.has_known(data):
            return None
        self.secrets += count
        note = "; ".join(filter(None, (piece.note, f"{count} secrets masked" if count else "")))
        path = _ODD.sub("_", self.text(piece.path))
        return Piece(path, data, note, log=piece.log)

    def text(self, text: str) -> str:
        """A text of the bundle's own, such as an error of a source."""
        masked = self._search.mask(text.encode(errors="replace"))[0].decode(errors="replace")
        return self._redactor.text(masked) if self._redactor is not None else masked

    def _without_prompts(self, piece: Piece, data: bytes) -> bytes:
        text = data.decode("utf-8", errors="replace")
        if piece.path.endswith(".json"):
            try:
                return as_json(self._in_value(json.loads(text)))
            except ValueError:
                return self._in_lines(text)
        if piece.path.endswith(".jsonl"):
            # At line feeds alone: a text in a row may hold the line ends of Unicode as they are.
            rows = text.removesuffix("\n").split("\n") if text else []
            return "".join(f"{self._in_row(row)}\n" for row in rows).encode(errors="replace")
        return self._in_lines(text, cut=piece.cut or piece.margin_bytes > 0)

    def _in_lines(self, text: str, *, cut: bool = False) -> bytes:
        kept, dropped = without_prompts(text, cut=cut)
        self.prompt_lines += dropped
        return kept.encode(errors="replace")

    def _in_row(self, line: str) -> str:
        """A row of JSON, with the texts in it (an engine's last words) searched line by line."""
        try:
            return json.dumps(self._in_value(json.loads(line)), ensure_ascii=False)
        except ValueError:
            return self._in_lines(line).decode().rstrip("\n")

    def _in_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._in_item(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._in_value(item) for item in value]
        if not isinstance(value, str):
            return value
        kept, dropped = without_prompts(value)
        self.prompt_lines += dropped
        return kept.rstrip("\n") if dropped else value

    def _in_item(self, key: str, value: Any) -> Any:
        """A value by its key: some keys say that it is what users asked or were answered."""
        if key.lower() in PROMPT_KEYS and isinstance(value, str | list | dict) and value:
            self.prompt_lines += 1
            return "(left out: it may show requests)"
        return self._in_value(value)
