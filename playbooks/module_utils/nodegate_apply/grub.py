"""Kernel arguments through GRUB: one file of ours, the menu that GRUB boots from, and what was booted.

/etc/default/grub.d/60-nodegate.cfg is read by grub-mkconfig (Debian, Ubuntu) after /etc/default/grub. What
will be booted is read from the menu that update-grub made, never from the file; what was booted is read from
/proc/cmdline. Where another boot loader is at work nothing is written, and one line says what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from .files import file_setting, no_file_setting
from .host import Host, HostError
from .setting import Setting
from .shared_look import SharedLook

FILE = "/etc/default/grub.d/60-nodegate.cfg"
MENU = "/boot/grub/grub.cfg"
CMDLINE = "/proc/cmdline"
UPDATE = "update-grub"
_UPDATE_S = 300.0
_LINUX = re.compile(r"linux(?:efi)?\s+(\S+)\s+(.*)")
_ENTRY = re.compile(r"menuentry\s+['\"]([^'\"]*)")
#: Words of an entry that is no normal start of the system.
_RESCUE = frozenset({"single", "recovery", "rescue", "nomodeset recovery"})
_OTHER_LOADER = (
    "this node does not boot by GRUB with update-grub: change its boot loader by hand, then reboot"
)
_LATER = f"look at files after {FILE.rpartition('/')[2]} in /etc/default/grub.d, and at /etc/grub.d"

_TEXT = """\
# Written by nodegate's role `kernel`: kernel_args, kernel_args_absent and iommu of the profile's part host.
nodegate_without() {{
    nodegate_kept=
    set -f
    for nodegate_word in $1; do
        case "$nodegate_word" in
{cases}        *) nodegate_kept="$nodegate_kept $nodegate_word" ;;
        esac
    done
    set +f
}}
nodegate_without "$GRUB_CMDLINE_LINUX"
GRUB_CMDLINE_LINUX="${{nodegate_kept# }}"
nodegate_without "$GRUB_CMDLINE_LINUX_DEFAULT"
GRUB_CMDLINE_LINUX_DEFAULT="${{nodegate_kept# }}{words}"
"""


def forbids(word: str, absent: str) -> bool:
    """Whether `absent` (a whole word, or a key before `=`) forbids a word."""
    return absent in (word, word.split("=", 1)[0])


def grub_text(words: Iterable[str], without: Iterable[str]) -> str:
    """The file: `words` are put last, where the last of a key wins, and once; `without` is taken out."""
    wanted = list(dict.fromkeys(words))
    patterns = [f"'{word}'" for word in wanted]
    for absent in dict.fromkeys(without):
        patterns += [f"'{absent}'"] if "=" in absent else [f"'{absent}'", f"'{absent}='*"]
    cases = f"        {' | '.join(patterns)}) ;;\n" if patterns else ""
    return _TEXT.format(cases=cases, words="".join(f" {word}" for word in wanted))


def menu_lines(text: str) -> list[list[str]]:
    """The kernel's words of every normal entry of grub.cfg."""
    found: list[list[str]] = []
    title = ""
    for line in text.splitlines():
        entry = _ENTRY.match(line.strip())
        if entry:
            # Systems of other disks (os-prober) have menus of their own.
            title = "recovery" if "'osprober-" in line else entry[1]
        match = _LINUX.match(line.strip())
        if match is None or "memtest" in match[1]:
            continue
        if "recovery" not in title and not _RESCUE & set(match[2].split()):
            found.append(match[2].split())
    return found


class BootLoader:
    """The node's boot loader and what it passes to the kernel."""

    def __init__(self, host: Host) -> None:
        """Look at nothing yet."""
        self._host = host
        self._menu = SharedLook(self._read_menu)

    @property
    def is_grub(self) -> bool:
        """Whether words can be changed here."""
        return self._host.has(UPDATE)

    def current(self) -> list[str]:
        """Words that this kernel was started with. Raises HostError."""
        text = self._host.read(CMDLINE)
        if text is None:
            raise HostError(f"{CMDLINE}: is not there; is /proc mounted?")
        return text.split()

    def next(self, reader: str) -> list[list[str]]:
        """Words of each normal entry of the menu. Raises HostError."""
        return self._menu.get(reader)

    def _read_menu(self) -> list[list[str]]:
        return menu_lines(self._host.read(MENU) or "")

    def update(self) -> None:
        """Make the menu anew. Raises HostError."""
        try:
            self._host.must([UPDATE], timeout_s=_UPDATE_S)
        finally:
            self._menu.forget()


def grub_settings(
    host: Host, loader: BootLoader, wanted: dict[str, str], absent: dict[str, str], unlike: Iterable[str] = ()
) -> list[Setting]:
    """The file: words that must and must not be there, with their fields; `unlike`: rivals to take out."""
    settings: list[Setting] = []
    if loader.is_grub:
        field = next(iter([*wanted.values(), *absent.values()]), "host.kernel_args")
        if wanted or absent:
            text = grub_text(wanted, [*absent, *unlike])
            settings.append(file_setting(host, FILE, text, field, after=UPDATE))
        else:
            settings.append(no_file_setting(host, FILE, field, after=UPDATE))
    return settings


def word_settings(loader: BootLoader, words: Iterable[str], absent: Iterable[str]) -> list[Setting]:
    """One setting for each word of host.kernel_args and host.kernel_args_absent."""
    return [
        *(_word(loader, word, "host.kernel_args", word, partial(_found, word=word)) for word in words),
        *(
            _word(loader, word, "host.kernel_args_absent", "absent", partial(_forbidden, absent=word))
            for word in absent
        ),
    ]


def _found(words: list[str], word: str) -> str:
    """The word, or what its key has instead."""
    if word in words:
        return word
    key, equals, _ = word.partition("=")
    rivals = [other for other in words if equals and other.startswith(f"{key}=")]
    return rivals[-1] if rivals else "absent"


def _forbidden(words: list[str], absent: str) -> str:
    return " ".join(word for word in words if forbids(word, absent)) or "absent"


def _word(loader: BootLoader, word: str, field: str, want: str, seen: Callable[[list[str]], str]) -> Setting:
    name = f"kernel argument {word}"

    def staged() -> str | None:
        states = [seen(words) for words in loader.next(name)]
        return next((state for state in states if state != want), want) if states else None

    if not loader.is_grub:
        return Setting(name, field, want, lambda: seen(loader.current()), advice=_OTHER_LOADER)
    return Setting(
        name, field, want, lambda: seen(loader.current()), lambda: None, staged, advice=_LATER, after=UPDATE
    )


def grub_groups(host: Host, loader: BootLoader) -> dict[str, Callable[[], None]]:
    """What is run once after words have changed. Made before: a menu that fails leaves the file as it was."""
    before = host.read(FILE) if loader.is_grub else None

    def update() -> None:
        try:
            loader.update()
        except HostError as cause:
            if before is None:
                host.remove(FILE)
            else:
                host.write(FILE, before)
            raise HostError(f"{cause}; {FILE} is as it was, and so is the menu") from cause

    return {UPDATE: update}
