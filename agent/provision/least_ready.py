"""`nodegate_min_ready` of an inventory: how many engines of a pool must stay ready, a number or a share."""

from __future__ import annotations

import re
from math import ceil
from typing import Any

_SHARE = re.compile(r"(\d{1,3})\s*%")


def least_ready(value: Any, whole: int) -> int:
    """Engines that must stay ready, of `whole`; a share is rounded up. Raises ValueError."""
    text = str(value).strip()
    share = _SHARE.fullmatch(text)
    if share is not None and int(share.group(1)) <= 100:
        return ceil(whole * int(share.group(1)) / 100)
    if isinstance(value, bool) or not text.isdecimal():
        raise ValueError(text)
    return int(text)
