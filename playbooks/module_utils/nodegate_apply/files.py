"""Settings that are whole files: read, compared, written at once or not at all."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable, Iterable

from .host import Host
from .setting import Setting


def file_setting(
    host: Host,
    path: str,
    text: str,
    field: str,
    *,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
    secret: bool = False,
    opaque: bool = False,
    after: str | None = None,
) -> Setting:
    """A file with exactly this text and these permissions."""
    mark = f"mode {mode:04o}\n"

    def read() -> str | None:
        found = host.read(path)
        if found is None:
            return None
        seen = host.mode(path)
        return found if seen == mode else f"mode {seen or 0:04o}\n{found}"

    def same(seen: str, want: str) -> bool:
        return seen in (want, mark + want)

    return Setting(
        path,
        field,
        text,
        read,
        lambda: host.write(path, text, mode, owner),
        same=same,
        secret=secret,
        opaque=opaque,
        after=after,
    )


def no_file_setting(host: Host, path: str, field: str, after: str | None = None) -> Setting:
    """A file that must not be there."""
    return Setting(
        path,
        field,
        "absent",
        lambda: "there" if host.exists(path) else "absent",
        lambda: host.remove(path),
        after=after,
    )


def own_sources(names: Iterable[str]) -> dict[str, str]:
    """The text of modules of this package (`host`, ...) by file name, also when it came from an archive."""
    package = __name__.rpartition(".")[0]
    loader = importlib.import_module(package).__loader__
    get_data: Callable[[str], bytes] = loader.get_data  # type: ignore[union-attr]
    here = pathlib.PurePath(__file__).parent
    return {f"{name}.py": get_data(str(here / f"{name}.py")).decode("utf-8") for name in names}
