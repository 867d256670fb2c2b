"""roce.nccl: does each engine's NCCL environment fit the fabric that the profile describes?

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html. The profile alone is judged: what nodegate
adds for the fabric, with `launch.env` over it. That the ports agree with the same part of the profile is
roce.pfc_config's matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.checks import advice
from agent.checks.ports import not_roce
from agent.checks.registry import Limits, check
from agent.checks.roce_nccl_hca import hca_problem
from agent.errors import LaunchError
from agent.launch.nccl_env import nccl_env, traffic_class
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import Engine, Mode, NodeProfile, Roce
from agent.sources import Sources

_REPAIR = advice.person(
    "Correct engines.NAME.launch.env, or leave the NCCL variables out of it: nodegate adds what fits."
)


#: The variables that are judged.
_READ = ("NCCL_IB_DISABLE", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One variable that does not fit; `hurts` whether traffic leaves the lossless class or the fabric."""

    words: str
    seen: str
    want: str
    basis: Basis
    hurts: bool = True


def _not_launched(profile: NodeProfile) -> str | None:
    if profile.mode is not Mode.MANAGE:
        return f"mode is {profile.mode}: nodegate launches no engine"
    with_gpus = any(engine.gpus for engine in profile.engines.values())
    return not_roce(profile) or (None if with_gpus else "no engine has a GPU")


@check(
    "roce.nccl",
    title="NCCL environment fits the fabric",
    source="the profile: fabric.roce, fabric.ports, engines.NAME.launch.env",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=60.0,
    fail_for_s=60.0,
    skip=_not_launched,
    action=_REPAIR,
)
def roce_nccl(_sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """NCCL must send in the lossless class, from the profile's ports and with the profile's GID."""
    for name, engine in profile.engines.items():
        if engine.gpus:
            yield _judge(profile, name, engine)


def _judge(profile: NodeProfile, name: str, engine: Engine) -> Finding:
    subject, roce = f"engine:{name}", profile.fabric.roce
    try:
        env = (nccl_env(profile.fabric, engine.gpus) if engine.launch.nccl_env else {}) | dict(
            engine.launch.env
        )
    except LaunchError as cause:
        basis = Basis.standard("ports that NCCL can use")
        return Finding(subject, Verdict.FAIL, str(cause), "too many", 32, "ports", _REPAIR, basis=basis)
    inherited = [name for name in _READ if name in engine.launch.inherit_env and name not in env]
    if inherited:
        summary = f"{', '.join(inherited)} comes from the agent's own environment: set it in launch.env"
        return Finding(subject, Verdict.UNKNOWN, summary, action=_REPAIR)
    found = [*_mismatches(env, roce, engine), *_hca(profile, engine, env)]
    if not found:
        summary = f"NCCL_IB_TC {env.get('NCCL_IB_TC')} is DSCP {roce.dscp}, its ports are the profile's"
        basis = Basis.profile("fabric.roce.dscp")
        return Finding(
            subject, Verdict.PASS, summary, env.get("NCCL_IB_TC"), str(traffic_class(roce)), basis=basis
        )
    found.sort(key=lambda mismatch: not mismatch.hurts)
    worst = found[0]
    # An engine that stays inside its node sends nothing over these ports: a mistake that does not hurt yet.
    fails = worst.hurts and engine.launch.rdma
    summary = "; ".join(mismatch.words for mismatch in found)[:230]
    finding = Finding(subject, Verdict.WARN, summary, worst.seen, worst.want, "", _REPAIR, basis=worst.basis)
    return replace(finding, verdict=Verdict.FAIL) if fails else finding


def _mismatches(env: Mapping[str, str], roce: Roce, engine: Engine) -> Iterator[Mismatch]:
    if env.get("NCCL_IB_DISABLE", "0") != "0" and engine.launch.rdma:
        basis = Basis.profile("fabric.kind")
        yield Mismatch("NCCL_IB_DISABLE is set: NCCL uses no RDMA", env["NCCL_IB_DISABLE"], "0", basis)
    yield from _traffic_class(env.get("NCCL_IB_TC", "0"), roce)
    level = env.get("NCCL_IB_SL", "0")
    if roce.trust == "pcp" and level != str(roce.priority):
        words = f"NCCL_IB_SL is {level}, expected the lossless priority {roce.priority}"
        yield Mismatch(words, level, str(roce.priority), Basis.profile("fabric.roce.priority"))
    yield from _gid_index(env.get("NCCL_IB_GID_INDEX", ""), roce)


def _traffic_class(given: str, roce: Roce) -> Iterator[Mismatch]:
    want = traffic_class(roce)
    basis = Basis.profile("fabric.roce.dscp")
    if not given.isdecimal() or int(given) > 255:
        yield Mismatch(f"NCCL_IB_TC is {given[:20]!r}, not 0 to 255", given[:20], str(want), basis)
        return
    if roce.trust == "dscp" and int(given) >> 2 != roce.dscp:
        words = f"NCCL_IB_TC is {given} (DSCP {int(given) >> 2}), expected {want} (DSCP {roce.dscp})"
        yield Mismatch(words, given, str(want), basis)
    elif roce.ecn and int(given) & 3 == 0:
        words = f"NCCL_IB_TC is {given} and says not ECN-capable, expected {want}"
        yield Mismatch(words, given, str(want), Basis.profile("fabric.roce.ecn"), hurts=False)


def _gid_index(given: str, roce: Roce) -> Iterator[Mismatch]:
    if given in ("", "-1"):
        return  # NCCL takes a RoCE v2 GID by itself
    basis = Basis.profile("fabric.roce.gid_index")
    if roce.gid_index is None:
        words = f"NCCL_IB_GID_INDEX is {given}, and fabric.roce.gid_index is unset: nic.gid does not watch it"
        yield Mismatch(words, given, "the same in both", basis, hurts=False)
    elif given != str(roce.gid_index):
        words = f"NCCL_IB_GID_INDEX is {given}, expected {roce.gid_index}"
        yield Mismatch(words, given, str(roce.gid_index), basis)


def _hca(profile: NodeProfile, engine: Engine, env: Mapping[str, str]) -> Iterator[Mismatch]:
    problem = hca_problem(env.get("NCCL_IB_HCA", ""), profile.fabric.ports, engine.gpus)
    if problem is not None:
        words, hurts = problem
        basis = Basis.profile("fabric.ports")
        yield Mismatch(words, env.get("NCCL_IB_HCA", "")[:60], "the data ports", basis, hurts)
