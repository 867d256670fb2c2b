"""host.hugepages, host.transparent_hugepage: what the kernel keeps of memory; the boot unit sets it again.

https://docs.kernel.org/admin-guide/mm/hugetlbpage.html, .../transhuge.html
"""

from __future__ import annotations

import re

from .host import Host, HostError
from .setting import Setting

HUGEPAGES = "/sys/kernel/mm/hugepages"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
_CHOSEN = re.compile(r"\[([^\]\s]+)\]")


def chosen(host: Host, path: str) -> str:
    """The value in brackets: `always [madvise] never` is madvise. Raises HostError."""
    text = host.read(path)
    if text is None:
        raise HostError(f"{path}: this kernel has no such file; take the setting out of the profile")
    match = _CHOSEN.search(text)
    if match is None:
        raise HostError(f"{path}: reads {text.strip()[:60]!r}, without a value in brackets")
    return match[1]


def choice_setting(host: Host, name: str, field: str, path: str, want: str, advice: str = "") -> Setting:
    """A file of the kernel that shows all values and the chosen one in brackets."""

    def read() -> str:
        seen = chosen(host, path)
        offered = (host.read(path) or "").replace("[", "").replace("]", "").split()
        if want not in offered:
            raise HostError(
                f"{path}: this kernel offers {', '.join(offered)}, not {want}; correct the profile"
            )
        return seen

    return Setting(name, field, want, read, lambda: host.poke(path, want), advice=advice)


def thp_settings(host: Host, want: str | None) -> list[Setting]:
    """Transparent huge pages."""
    if want is None:
        return []
    return [choice_setting(host, "transparent huge pages", "host.transparent_hugepage", THP, want)]


def hugepage_settings(host: Host, wanted: dict[int, int], *, settled: bool = False) -> list[Setting]:
    """Huge pages by size in kB; at least as many as the profile says."""
    return [_pages(host, int(size_kb), int(count), settled) for size_kb, count in wanted.items()]


def _pages(host: Host, size_kb: int, count: int, settled: bool) -> Setting:
    path = f"{HUGEPAGES}/hugepages-{size_kb}kB/nr_hugepages"
    tried: list[bool] = []

    def read() -> str:
        text = host.read(path)
        if text is None:
            sizes = ", ".join(name.removeprefix("hugepages-") for name in host.names(HUGEPAGES))
            raise HostError(
                f"this kernel has no huge pages of {size_kb} kB (it has {sizes or 'none'});"
                " correct host.hugepages in the profile"
            )
        return text.strip()

    def write() -> None:
        host.poke(path, str(count))
        tried.append(True)

    def staged() -> str:
        # Memory in pieces: fewer pages than asked for are given now, the boot unit asks when memory is whole.
        return str(count) if tried and not settled else read()

    return Setting(
        f"huge pages of {size_kb} kB", f"host.hugepages.{size_kb}", str(count), read, write, staged,
        advice="memory is too small or in pieces: take fewer, or give hugepages= in host.kernel_args",
        same=lambda seen, want: seen.isdigit() and int(seen) >= int(want),
    )  # fmt: skip
