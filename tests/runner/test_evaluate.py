"""What results mean for one engine: tables of each rule, and that nothing incomplete ever admits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runner_kit import make_check, profile, result, snapshot

from agent.checks.registry import Check, load_all
from agent.evaluate import Judgement, judge
from agent.model import Phase, Result, ServingClass, Verdict

P, W, F, U, S = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP
SERVING_ONLY = frozenset({Phase.SERVING})
TWO = {"a": [0, 1], "b": [2, 3]}
NOW = 1000.0


def by_id(*checks: Check) -> dict[str, Check]:
    return {check.id: check for check in checks}


def judged(
    results: list[Result], checks: dict[str, Check], engine: str = "a", now: float = NOW, **options: Any
) -> Judgement:
    return judge(
        snapshot(*results), profile(options.pop("engines", TWO), gpus=4, **options), engine, checks, now
    )


def gpus(check: str, *verdicts: Verdict, **changes: Any) -> list[Result]:
    return [result(check, f"gpu{slot}", verdict, **changes) for slot, verdict in enumerate(verdicts)]


def names(blockers: tuple[Any, ...]) -> list[str]:
    return [f"{b.check} {b.subject} {b.verdict}" for b in blockers]


def test_an_empty_snapshot_never_admits() -> None:
    judgement = judged([], by_id(make_check("x"), make_check("y")))
    assert not judgement.admits
    assert judgement.missing == ("x", "y")


def test_an_engine_that_the_profile_does_not_have_is_not_admitted() -> None:
    assert not judged([result("x", "node", P)], by_id(make_check("x")), engine="zzz").admits


@pytest.mark.parametrize(("verdict", "admits"), [(P, True), (W, True), (S, True), (F, False), (U, False)])
def test_admission_by_verdict(verdict: Verdict, admits: bool) -> None:
    judgement = judged([result("x", "node", verdict)], by_id(make_check("x")))
    assert judgement.admits is admits
    assert names(judgement.admission_blockers) == ([] if admits else [f"x node {verdict}"])


def test_unknown_does_not_block_where_the_check_says_so() -> None:
    lenient = by_id(make_check("x", unknown_blocks_admission=False))
    assert judged([result("x", "node", U)], lenient).admits
    assert not judged([result("x", "node", F)], lenient).admits


@pytest.mark.parametrize(("verdict", "raw"), [(P, F), (P, U), (F, P), (U, P)])
def test_hysteresis_opens_no_gate(verdict: Verdict, raw: Verdict) -> None:
    assert not judged([result("x", "node", verdict, raw=raw)], by_id(make_check("x"))).admits


@pytest.mark.parametrize(("age_s", "admits"), [(0.0, True), (25.0, True), (25.1, False), (-5.0, False)])
def test_stale_evidence_and_evidence_from_the_future_block(age_s: float, admits: bool) -> None:
    judgement = judged([result("x", "node", P, measured_mono_s=NOW - age_s)], by_id(make_check("x")))
    assert judgement.admits is admits
    assert [b.verdict for b in judgement.admission_blockers] == ([] if admits else [U])


def test_an_old_failure_stays_one() -> None:
    lenient = by_id(make_check("x", unknown_blocks_admission=False))
    old = result("x", "node", F, measured_mono_s=NOW - 500)
    judgement = judged([old], lenient)
    assert names(judgement.admission_blockers) == names(judgement.hard) == ["x node FAIL"]


def test_a_gpu_fault_concerns_the_owner_and_a_node_or_port_fault_all() -> None:
    checks = by_id(make_check("g"), make_check("n"), make_check("p"))
    sound = [*gpus("g", P, P, P, P), result("n", "node", P), result("p", "mlx5_0/1", P)]
    bad_gpu = [*gpus("g", P, P, F, P), *sound[4:]]
    assert judged(bad_gpu, checks, "a").admits
    assert names(judged(bad_gpu, checks, "b").hard) == ["g gpu2 FAIL"]
    for broken in (result("n", "node", F), result("p", "mlx5_0/1", F)):
        both = [r for r in sound if r.check != broken.check] + [broken]
        assert [bool(judged(both, checks, engine).hard) for engine in TWO] == [True, True]


def test_another_engine_s_subject_does_not_concern_this_one() -> None:
    checks = by_id(make_check("e"))
    results = [result("e", "engine:a", P), result("e", "engine:b", F)]
    assert judged(results, checks, "a").admits
    assert not judged(results, checks, "b").admits


def test_a_gpu_check_must_have_spoken_of_every_gpu_of_the_engine() -> None:
    checks = by_id(make_check("g"))
    assert judged(gpus("g", P, P), checks, "a").missing == ()
    assert judged(gpus("g", P, P), checks, "b").missing == ("g gpu2", "g gpu3")
    assert judged([result("g", "engine:a", P)], checks, "b").missing == ("g engine:b",)


def test_an_engine_without_gpus_waits_for_no_gpu() -> None:
    assert judged(gpus("g", P, F), by_id(make_check("g")), "cpu", engines={"cpu": []}).admits


def test_a_check_that_runs_only_while_serving_does_not_block_admission() -> None:
    judgement = judged([result("e", "engine:a", F)], by_id(make_check("e", phases=SERVING_ONLY)))
    assert judgement.admits
    assert names(judgement.hard) == ["e engine:a FAIL"]


def test_a_waiver_holds_unless_the_check_cannot_be_waived() -> None:
    waived = [result("x", "node", F, waived=True)]
    assert judged(waived, by_id(make_check("x"))) == Judgement()
    firm = judged(waived, by_id(make_check("x", waivable=False)))
    assert not firm.admits
    assert firm.hard


@pytest.mark.parametrize(
    ("cls", "verdict", "expected"),
    [
        (ServingClass.IMMEDIATE, F, "immediate"),
        (ServingClass.HARD, F, "hard"),
        (ServingClass.SOFT, F, "soft"),
        (ServingClass.INFO, F, "info"),
        (ServingClass.IMMEDIATE, U, "soft"),
        (ServingClass.HARD, U, "soft"),
        (ServingClass.SOFT, U, "info"),
        (ServingClass.INFO, U, "info"),
        (ServingClass.HARD, W, "info"),
        (ServingClass.HARD, P, None),
        (ServingClass.HARD, S, None),
    ],
)
def test_effect_while_serving(cls: ServingClass, verdict: Verdict, expected: str | None) -> None:
    judgement = judged([result("x", "node", verdict, cls=cls)], by_id(make_check("x")))
    found = {key for key in ("immediate", "hard", "soft", "info") if getattr(judgement, key)}
    assert found == ({expected} if expected else set())


def test_an_unconfirmed_failure_closes_nothing() -> None:
    judgement = judged([result("x", "node", P, raw=F)], by_id(make_check("x")))
    assert (judgement.immediate, judgement.hard, judgement.soft) == ((), (), ())


@pytest.mark.parametrize(("rdma", "expected"), [(True, "hard"), (False, "info")])
def test_the_network_gates_a_serving_engine_only_if_it_uses_rdma(rdma: bool, expected: str) -> None:
    judgement = judged([result("x", "mlx5_0/1", F)], by_id(make_check("x", network=True)), rdma=rdma)
    assert names(getattr(judgement, expected)) == ["x mlx5_0/1 FAIL"]
    assert not judgement.admits  # at admission it always does


@pytest.mark.parametrize(
    "results",
    [
        [],
        [result("engine.health", "engine:b", P)],
        [result("engine.health", "engine:a", U)],
        [result("engine.health", "engine:a", P, measured_mono_s=NOW - 60)],
        [result("engine.health", "node", U)],
    ],
)
def test_without_fresh_word_of_the_engine_a_serving_gate_closes(results: list[Result]) -> None:
    checks = by_id(make_check("engine.health", phases=SERVING_ONLY))
    assert judged(results, checks).immediate
    assert judged(results, checks).admits  # but it must be launched first


def test_a_health_check_left_out_by_the_profile_closes_nothing() -> None:
    checks = by_id(make_check("engine.health", phases=SERVING_ONLY))
    assert judged([result("engine.health", "node", S)], checks) == Judgement()


@pytest.mark.parametrize(
    ("cls", "verdict", "raw", "phases", "bridged"),
    [
        (ServingClass.SOFT, F, F, None, True),
        (ServingClass.INFO, F, F, None, True),
        (ServingClass.HARD, F, F, None, False),
        (ServingClass.HARD, P, F, None, False),
        (ServingClass.HARD, P, U, None, True),
        (ServingClass.HARD, U, U, None, False),
        (ServingClass.IMMEDIATE, F, F, None, False),
        (ServingClass.INFO, F, F, frozenset({Phase.ADMISSION}), False),
    ],
)
def test_what_a_crashed_engine_may_come_back_with(
    cls: ServingClass, verdict: Verdict, raw: Verdict, phases: frozenset[Phase] | None, bridged: bool
) -> None:
    checks = by_id(make_check("x", **({"phases": phases} if phases else {})))
    judgement = judged([result("x", "node", verdict, raw=raw, cls=cls)], checks)
    assert names(judgement.admission_blockers), "a first launch waits for it in any case"
    assert judgement.bridged == (frozenset({("x", "node")}) if bridged else frozenset())


@pytest.mark.parametrize("rdma", [True, False])
def test_a_crashed_engine_waits_for_the_network_only_if_it_uses_rdma(rdma: bool) -> None:
    judgement = judged([result("x", "mlx5_0/1", F)], by_id(make_check("x", network=True)), rdma=rdma)
    assert bool(judgement.bridged) is not rdma


@pytest.mark.parametrize("raw", [F, U])
def test_what_a_start_rests_on_is_never_left_out(raw: Verdict) -> None:
    checks = by_id(make_check("x", needed_to_start=True))
    assert judged([result("x", "node", raw, raw=raw, cls=ServingClass.SOFT)], checks).bridged == frozenset()
    marked = {id_ for id_, check in load_all().items() if check.needed_to_start}
    assert marked == {"gpu.foreign", "driver.modules", "host.mounts"}


def test_the_worst_reason_comes_first() -> None:
    checks = by_id(make_check("a"), make_check("b"))
    judgement = judged([result("a", "node", U), result("b", "node", F)], checks)
    assert names(judgement.admission_blockers) == ["b node FAIL", "a node UNKNOWN"]


CHECKS = by_id(
    make_check("g1"), make_check("g2", network=True), make_check("n1", waivable=False),
    make_check("n2", unknown_blocks_admission=False), make_check("s", phases=SERVING_ONLY),
)  # fmt: skip
SUBJECTS = {"g1": ["gpu0", "gpu1", "gpu2", "gpu3"], "g2": ["gpu0", "gpu1", "gpu2", "gpu3"], "n1": ["node"],
            "n2": ["mlx5_0/1"], "s": ["engine:a"]}  # fmt: skip
KEYS = [(check, subject) for check, subjects in SUBJECTS.items() for subject in subjects]


@st.composite
def node_results(draw: st.DrawFn) -> list[Result]:
    """Mostly sound results of a node, some of them missing, bad, unknown, stale or waived."""
    found = []
    for check, subject in KEYS:
        kind = draw(
            st.sampled_from(["sound"] * 6 + ["missing", "bad", "unknown", "stale", "pending", "waived"])
        )
        if kind == "missing":
            continue
        verdict = {"bad": F, "unknown": U, "waived": F}.get(kind) or draw(st.sampled_from([P, W, S]))
        found.append(
            result(
                check,
                subject,
                verdict,
                raw=draw(st.sampled_from([F, U])) if kind == "pending" else None,
                measured_mono_s=NOW - (26 if kind == "stale" else 1),
                waived=kind == "waived",
            )
        )
    return found


@given(results=node_results(), engine=st.sampled_from(["a", "b"]))
def test_nothing_incomplete_ever_admits(results: list[Result], engine: str) -> None:
    judgement = judged(results, CHECKS, engine)
    have = {(r.check, r.subject): r for r in results}
    for check_id, subject in KEYS:
        check, owner = (
            CHECKS[check_id],
            {"gpu0": "a", "gpu1": "a", "gpu2": "b", "gpu3": "b"}.get(subject, engine),
        )
        if Phase.ADMISSION not in check.phases or owner != engine:
            continue
        found = have.get((check_id, subject))
        if found is None:
            assert not judgement.admits
            continue
        if found.waived and check.waivable:
            continue
        unknown = U in (found.verdict, found.raw_verdict) or found.age_s(NOW) > found.valid_for_s
        if F in (found.verdict, found.raw_verdict) or (unknown and check.unknown_blocks_admission):
            assert not judgement.admits


@given(results=node_results())
def test_a_judgement_depends_on_nothing_but_the_engine_s_own_subjects(results: list[Result]) -> None:
    mine = [r for r in results if r.subject not in ("gpu2", "gpu3")]
    if all(any(r.check == check and r.subject in ("gpu0", "gpu1") for r in mine) for check in ("g1", "g2")):
        assert judged(results, CHECKS, "a") == judged(mine, CHECKS, "a")
