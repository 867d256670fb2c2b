"""engine.environment: is the engine that is installed the one that the profile pins?

Packages carry their version in METADATA of a folder NAME-VERSION.dist-info. Nothing is imported or started.
https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.checks import advice
from agent.checks.engine_packages import package_files
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.launch_parts import EngineEnvironment
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_INSTALL = advice.play(
    "engine",
    "Run site.yml --tags engine on this node, which installs what is pinned; then restart the engine.",
)
_VERSION = re.compile(r"^Version: *(\S+) *$", re.MULTILINE)


def _skip(profile: NodeProfile) -> str | None:
    described = any(engine.launch.environment for engine in profile.engines.values())
    return None if described else "no engine has an environment in the profile (launch.environment)"


@check(
    "engine.environment",
    title="Engine as pinned",
    source="PATH/lib/python3*/site-packages/*.dist-info/METADATA",
    serving_class=ServingClass.SOFT,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    period_s=60.0,
    fail_for_s=60.0,
    deadline_s=10.0,
    skip=_skip,
    action=_INSTALL,
)
def engine_environment(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every pinned package must be in the environment, in its version."""
    for name, engine in profile.engines.items():
        if engine.launch.environment is None:
            continue
        try:
            yield _judge(sources, name, engine.launch.environment)
        except SourceError as cause:
            yield unknown(f"engine:{name}", cause)


def _judge(sources: Sources, name: str, environment: EngineEnvironment) -> Finding:
    subject, key = f"engine:{name}", f"engines.{name}.launch.environment"
    files = package_files(sources.tree, environment.path)
    for package, want in environment.packages.items():
        seen = _installed(sources, files, package)
        if seen != want:
            text = f"{environment.path} has {package} {seen or 'not installed'}, pinned {want}"
            basis = Basis.profile(f"{key}.packages.{package}")
            return Finding(subject, Verdict.FAIL, text, seen or "absent", want, action=_INSTALL, basis=basis)
    words = ", ".join(f"{package} {want}" for package, want in environment.packages.items())
    return Finding(subject, Verdict.PASS, words, basis=Basis.profile(key))


def _installed(sources: Sources, files: dict[str, str], package: str) -> str | None:
    if package not in files:
        return None
    try:
        text = sources.tree.text(files[package])
    except DeviceAbsent:
        return None
    match = _VERSION.search(text)
    if match is None:
        raise ParseError(f"/{files[package]} names no version")
    return match[1]
