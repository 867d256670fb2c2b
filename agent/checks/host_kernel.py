"""host.kernel_args, host.sysctl: was the kernel started and set as the profile says?

/proc/cmdline is what the kernel was really started with, whatever the boot loader's files say by now.
https://docs.kernel.org/admin-guide/kernel-parameters.html, https://docs.kernel.org/admin-guide/sysctl/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from agent.checks import advice
from agent.checks.host_text import listed, normal_words
from agent.checks.registry import Limits, check, each
from agent.errors import DeviceAbsent
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

CMDLINE = "proc/cmdline"
PROC_SYS = "proc/sys"
_BOOT = advice.play(
    "kernel",
    "Correct the kernel's arguments in the boot loader (mostly GRUB_CMDLINE_LINUX), then reboot the node.",
)
_SET = advice.play("kernel", "Set it with sysctl -w and in /etc/sysctl.d, so that it holds after a reboot.")
_NO_KEY = advice.person(
    "Take the key out of host.sysctl in the profile, or run a kernel that has it: setting it does nothing."
)


def _no_args(profile: NodeProfile) -> str | None:
    asked = profile.host.kernel_args or profile.host.kernel_args_absent
    return None if asked else "the profile asks for no kernel arguments"


@check(
    "host.kernel_args",
    title="Kernel arguments",
    source="/proc/cmdline",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=_no_args,
    action=_BOOT,
)
def host_kernel_args(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The kernel must have been started with the profile's words, and without those that it excludes."""
    words = sources.tree.text(CMDLINE).split()
    host = profile.host
    missing = [_with_rival(word, words) for word in host.kernel_args if word not in words]
    if missing:
        summary = f"the kernel was started without {listed(missing)}"
        wanted = " ".join(host.kernel_args)
        basis = Basis.profile("host.kernel_args")
        yield Finding("node", Verdict.FAIL, summary, listed(missing), wanted, action=_BOOT, basis=basis)
        return
    unwanted = [word for word in words if {word, word.split("=", 1)[0]} & set(host.kernel_args_absent)]
    if unwanted:
        summary = f"the kernel was started with {listed(unwanted)}"
        basis = Basis.profile("host.kernel_args_absent")
        wanted = f"without {listed(host.kernel_args_absent)}"
        yield Finding("node", Verdict.FAIL, summary, listed(unwanted), wanted, action=_BOOT, basis=basis)
        return
    yield Finding("node", Verdict.PASS, "as the profile says", basis=Basis.profile("host.kernel_args"))


def _with_rival(word: str, words: list[str]) -> str:
    """The missing word, with the value that its key has instead."""
    key, equals, _ = word.partition("=")
    rivals = [other for other in words if equals and other.startswith(f"{key}=")]
    return f"{word} (it has {rivals[-1]})" if rivals else word


def _no_sysctl(profile: NodeProfile) -> str | None:
    return None if profile.host.sysctl else "the profile sets no kernel settings"


@check(
    "host.sysctl",
    title="Kernel settings",
    source="/proc/sys",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=_no_sysctl,
    action=_SET,
)
def host_sysctl(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each kernel setting of the profile must exist in this kernel and have its value."""
    yield from each(profile.host.sysctl.items(), lambda key, want: _judge_sysctl(sources, key, want))


def _judge_sysctl(sources: Sources, key: str, want: int | str) -> Finding:
    basis = Basis.profile(f"host.sysctl.{key}")
    sources.tree.names(PROC_SYS)  # without it, no key is there and nothing is known
    try:
        paths = _expanded(sources, _parts(key))
        seen = {path: sources.tree.text(path) for path in paths}
    except DeviceAbsent:
        seen = {}
    if not seen:
        summary = f"this kernel has no {key}"
        return Finding(key, Verdict.FAIL, summary, "absent", want, action=_NO_KEY, basis=basis)
    wrong = {path: text for path, text in seen.items() if normal_words(text) != normal_words(want)}
    for path, text in wrong.items():
        value = " ".join(text.split())[:80]
        where = "" if len(seen) == 1 else f" ({path.removeprefix(PROC_SYS + '/')})"
        summary = f"{key} is {value or 'empty'}{where}, expected {want}"
        return Finding(key, Verdict.FAIL, summary, value, want, action=_SET, basis=basis)
    return Finding(key, Verdict.PASS, "as the profile says", want, want, basis=basis)


def _parts(key: str) -> list[str]:
    """The parts of a key as sysctl(8) reads it: the first separator counts, the other one stands in names."""
    separators = re.sub(r"[^./]", "", key)
    if separators.startswith("/"):
        return key.split("/")
    return [part.replace("/", ".") for part in key.split(".")]


def _expanded(sources: Sources, parts: list[str]) -> list[str]:
    """Paths that the parts stand for; `*` stands for any name. Raises DeviceAbsent."""
    paths = [PROC_SYS]
    for part in parts:
        if "*" not in part:
            paths = [f"{path}/{part}" for path in paths]
            continue
        paths = [f"{p}/{name}" for p in paths for name in sources.tree.names(p) if fnmatchcase(name, part)]
    return paths
