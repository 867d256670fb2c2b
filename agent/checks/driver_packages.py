"""driver.packages: are the packages of the driver at the profile's versions, and held there?

/var/lib/dpkg/status (dpkg(1)): a Package, Status and Version of each installed package; `hold` as the first
word of Status keeps apt from moving it. An upgrade of one of the set under running GPUs is the start of most
version mismatches: the library is new, the module is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.host_text import listed
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

STATUS = "var/lib/dpkg/status"
_INSTALL = advice.play(
    "gpu", "Install these versions as one set (apt-get install NAME=VERSION ...), then apt-mark hold them."
)
_HOLD = advice.play("gpu", "Run apt-mark hold for these packages, so that no upgrade moves one of the set.")


@check(
    "driver.packages",
    title="Packages of the driver",
    source=f"/{STATUS}",
    serving_class=ServingClass.INFO,
    period_s=300.0,
    fail_for_s=300.0,
    skip=lambda p: None if p.gpus.packages else "the profile names no packages (gpus.packages)",
    action=_INSTALL,
)
def driver_packages(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each package of the profile must be installed at exactly its version, and held."""
    try:
        yield _judge(sources.tree.text(STATUS), profile)
    except DeviceAbsent:
        text = "this node has no dpkg, whose versions gpus.packages gives"
        basis = Basis.profile("gpus.packages")
        yield Finding("node", Verdict.FAIL, text, "absent", "dpkg", action=_INSTALL, basis=basis)
    except SourceError as cause:
        yield unknown("node", cause)


def _judge(text: str, profile: NodeProfile) -> Finding:
    if "Package: " not in text:
        raise ParseError(f"/{STATUS} lists no package")
    wanted = profile.gpus.packages
    seen = {name: installed(text, name) for name in wanted}
    wrong = [name for name, found in seen.items() if found is None or found[0] != wanted[name]]
    if wrong:
        name = wrong[0]
        found = seen[name]
        have = "not installed" if found is None else found[0]
        more = f", and {listed(wrong[1:])}" if wrong[1:] else ""
        summary = f"{name} is {have}, expected {wanted[name]}{more}"[:240]
        basis = Basis.profile(f"gpus.packages.{name}")
        return Finding("node", Verdict.FAIL, summary, have, wanted[name], action=_INSTALL, basis=basis)
    loose = [name for name, found in seen.items() if found is not None and not found[1]]
    if loose:
        summary = f"not held: {listed(loose)}: the next upgrade may move them one by one"
        basis = Basis.profile("gpus.packages")
        return Finding("node", Verdict.FAIL, summary, "not held", "held", action=_HOLD, basis=basis)
    basis = Basis.profile("gpus.packages")
    return Finding("node", Verdict.PASS, f"{len(wanted)} packages as the profile says, held", basis=basis)


def installed(text: str, name: str) -> tuple[str, bool] | None:
    """Version, and whether it is held, of an installed package. Raises ParseError."""
    heading = f"Package: {name}\n"
    at = 0 if text.startswith(heading) else text.find(f"\n{heading}") + 1
    while at or text.startswith(heading):
        end = text.find("\n\n", at)
        stanza = text[at : end if end >= 0 else len(text)]
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
        words = fields.get("Status", "").split()
        if len(words) != 3 or (words[2] == "installed" and not fields.get("Version")):
            raise ParseError(f"/{STATUS} does not say the status of {name}")
        if words[2] == "installed":
            return fields["Version"], words[0] == "hold"
        following = text.find(f"\n{heading}", at)
        if following < 0:
            return None
        at = following + 1
    return None
