"""gpus.packages: packages of Debian or Ubuntu at exactly one version, held, installed in one transaction.

What is installed and held is read from dpkg's own status file. A version that no source has is refused before
anything changes; a downgrade is refused by apt-get itself. deb-version(7), apt-get(8), apt-mark(8).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from .host import Host, HostError
from .setting import Setting
from .shared_look import SharedLook

STATUS = "/var/lib/dpkg/status"
FIELD = "gpus.packages"
#: How long apt-get waits for another one to end.
_LOCK_S = 180
_INSTALL_S = 1800.0
_UPDATE_S = 300.0
_MADISON_S = 60.0
_APT = (
    "env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=l", "apt-get", "--yes", "--quiet=2",
    "-o", f"DPkg::Lock::Timeout={_LOCK_S}", "-o", "Dpkg::Options::=--force-confold",
    "-o", "Acquire::Retries=3",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Package:
    """One installed package."""

    version: str
    held: bool


def installed(text: str) -> dict[str, Package]:
    """Installed packages by name, of dpkg's status file; of several architectures the last one."""
    found: dict[str, Package] = {}
    for stanza in text.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" ")
        )
        words = fields.get("Status", "").split()
        if len(words) == 3 and words[2] == "installed":
            found[fields["Package"]] = Package(fields.get("Version", ""), words[0] == "hold")
    return found


class PackageSet:
    """Packages that belong together: one look, one transaction."""

    def __init__(self, host: Host, wanted: Mapping[str, str], *, check: bool) -> None:
        """`check`: not even the lists of packages are fetched."""
        self._host, self.wanted, self._check = host, dict(wanted), check
        self._look = SharedLook(self._installed)
        self._offered = SharedLook(self._madison)
        #: Called once packages were installed: what others know of the node is old then.
        self.on_installed: list[Callable[[], None]] = []

    @property
    def coming(self) -> bool:
        """Whether any of them is about to be installed, so that what it brings may be missing now."""
        try:
            there = self._installed()
        except HostError:
            return False
        return any(name not in there or there[name].version != want for name, want in self.wanted.items())

    def settings(self) -> list[Setting]:
        """One for each package."""
        return [self._setting(name, version) for name, version in self.wanted.items()]

    def _setting(self, name: str, version: str) -> Setting:
        return Setting(
            f"package {name}", f"{FIELD}.{name}", f"{version}, held", lambda: self._seen(name, version),
            self._install, advice="read /var/log/apt/term.log",
            # Their scripts restart the driver's services, and libraries no longer fit the loaded module.
            disturbs=lambda: self.coming,
        )  # fmt: skip

    def _seen(self, name: str, version: str) -> str | None:
        package = self._look.get(name).get(name)
        if package is None or package.version != version:
            self._refuse_unknown(name, version)
        if package is None:
            return None
        return f"{package.version}, {'held' if package.held else 'not held'}"

    def _refuse_unknown(self, name: str, version: str) -> None:
        offered = self._offered.get(name).get(name, [])
        if version not in offered:
            have = ", ".join(offered[:3]) or "nothing"
            raise HostError(
                f"no package source has {name} {version} (they have {have});"
                " add the source, or correct gpus.packages in the profile"
            )

    def _installed(self) -> dict[str, Package]:
        text = self._host.read(STATUS)
        if text is None:
            raise HostError(f"{STATUS}: is not there: gpus.packages needs Debian or Ubuntu")
        return installed(text)

    def _madison(self) -> dict[str, list[str]]:
        """Versions that sources offer, newest first; the lists are fetched anew when one is missing."""
        found = self._offers()
        lacking = any(version not in found.get(name, []) for name, version in self.wanted.items())
        if lacking and not self._check:
            self._host.must([*_APT, "update"], timeout_s=_UPDATE_S)
            found = self._offers()
        return found

    def _offers(self) -> dict[str, list[str]]:
        text = self._host.must(["apt-cache", "madison", *self.wanted], timeout_s=_MADISON_S)
        rows = [[word.strip() for word in line.split("|")] for line in text.splitlines() if "|" in line]
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(row[0], []).append(row[1])
        return found

    def _install(self) -> None:
        """Everything that differs at once; whoever comes second finds nothing left to do."""
        there = self._installed()
        due = [
            f"{name}={version}"
            for name, version in self.wanted.items()
            if name not in there or there[name].version != version
        ]
        if due:
            self._host.must(
                [*_APT, "install", "--allow-downgrades=no", "--allow-change-held-packages", *due],
                timeout_s=_INSTALL_S,
            )
            for call in self.on_installed:
                call()
            there = self._installed()
        loose = [name for name in self.wanted if name in there and not there[name].held]
        if loose:
            self._host.must(["apt-mark", "hold", *loose], timeout_s=_MADISON_S)
