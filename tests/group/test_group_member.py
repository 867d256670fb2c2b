"""One member as the daemon runs it: pulls over a real socket, the gate's judgement, the answer to others."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gate_kit
import group_kit as kit
import pytest
from fake_sources import FakeClock, FakeNode
from server_kit import HandTime, profile, published, record, serve

from agent.evaluate import Judgement
from agent.gate_record import GateRecord
from agent.group.answer import GroupAnswer
from agent.group.member import CHECK, DISK_RETRY_S, GroupMember, Membership
from agent.group.puller import Puller
from agent.group.status import MemberStatus, Stage, seal, unseal
from agent.group_profile import Group
from agent.model import EnginePhase, GateState, Verdict
from agent.publisher import Publisher
from agent.sources.group_reading import GroupBoard

NONCE = "0123456789abcdef"
PREFLIGHT = record(GateState.PREFLIGHT)


class Hands:
    """A controller that notes what it is told."""

    recovered = True
    told = False

    def head_is_up(self) -> None:
        self.told = True


def group_of(port: int = 1, rank: int = 0, **more: Any) -> dict[str, Any]:
    members = [
        {"node": "bench", "address": "127.0.0.1", "port": port},
        {"node": "n1", "address": "127.0.0.2", "port": port},
    ]
    return {"rank": rank, "members": members if rank == 0 else members[::-1], "key_file": "/k", **more}


def member(tmp_path: Path, rank: int = 0, hands: Hands | None = None) -> GroupMember:
    """This node, whose other member the test puts in by hand."""
    made = profile(group=group_of(rank=rank))
    sources = FakeNode({"nvml": {}}).sources
    given = Membership("glm", "bench", kit.KEY, tmp_path, 5.0)
    built = GroupMember(given, made, sources, GroupBoard(), hands or Hands(), lambda: None)
    built._facts = replace(built._facts, driver="580", problem="")
    return built


def hear(built: GroupMember, **said: Any) -> None:
    """The other member says something."""
    now_s = built._clock.mono_s()
    (rank,) = built._puller._peers
    parts = {"node": "n1", "driver": "580", "parts": built._parts, "checkpoint": ""}
    status = kit.says(rank, **{**parts, **said})
    peer = replace(
        built._puller._peers[rank], status=status, heard_mono_s=now_s, data_mono_s=now_s, error="",
        data_error="", joined=status.generation, served_mono_s=now_s if status.serves else None,
    )  # fmt: skip
    built._puller._peers[rank] = peer


def take(
    built: GroupMember,
    phase: EnginePhase,
    gate: GateRecord = PREFLIGHT,
    judgement: Judgement = gate_kit.CLEAN,
) -> tuple[Judgement, bool]:
    return built.take(judgement, gate_kit.status(phase), gate)


def word(judgement: Judgement) -> Verdict | None:
    """The group's verdict among the reasons."""
    said = [b.verdict for b in judgement.admission_blockers if b.check == CHECK]
    return said[0] if said else None


def test_a_head_starts_when_all_are_armed_opens_when_all_serve_and_ends_with_them(tmp_path: Path) -> None:
    head = member(tmp_path)
    take(head, EnginePhase.ABSENT)
    assert word(take(head, EnginePhase.ABSENT)[0]) is Verdict.UNKNOWN
    hear(head, waits_for=("gpu.count node: 7",))
    assert word(take(head, EnginePhase.ABSENT)[0]) is Verdict.UNKNOWN
    hear(head)
    assert word(take(head, EnginePhase.ABSENT)[0]) is None, "started"
    generation = head.record.generation
    assert json.loads((tmp_path / "group-glm.json").read_text())["generation"] == generation
    hear(head, stage="go", generation=generation, phase="starting", gate="launching")
    judgement, over = take(head, EnginePhase.WARM)
    assert (word(judgement), over) == (Verdict.UNKNOWN, False)
    hear(head, stage="go", generation=generation, phase="warm", gate="member")
    assert word(take(head, EnginePhase.WARM)[0]) is None
    serving = record(GateState.SERVING)
    hear(head, stage="ending", generation=generation, phase="stopping", gate="failed", reason="gpu.lost gpu3")
    judgement, over = take(head, EnginePhase.WARM, serving)
    assert over and judgement.immediate[0].check == CHECK
    assert "gpu.lost gpu3" in judgement.immediate[0].summary
    take(head, EnginePhase.STOPPING)
    assert head.status(PREFLIGHT).stage == Stage.ENDING
    take(head, EnginePhase.ABSENT)
    assert head.status(PREFLIGHT).stage == Stage.WAITING


def test_a_follower_hears_from_its_head_when_its_rank_counts_as_up(tmp_path: Path) -> None:
    hands = Hands()
    follower = member(tmp_path, 1, hands)
    take(follower, EnginePhase.ABSENT)
    hear(follower, stage="go", generation="a1", phase="starting", go_age_s=1.0)
    assert word(take(follower, EnginePhase.ABSENT)[0]) is None
    take(follower, EnginePhase.STARTING)
    assert not hands.told
    hear(follower, stage="go", generation="a1", phase="up")
    take(follower, EnginePhase.STARTING)
    assert hands.told


@pytest.mark.parametrize(
    ("gate", "judgement", "why"),
    [
        (replace(PREFLIGHT, maintenance=gate_kit.HOLD), gate_kit.CLEAN, "maintenance: work on the loop"),
        (replace(PREFLIGHT, shutting_down=True), gate_kit.CLEAN, "its agent is shutting down"),
        (replace(PREFLIGHT, restarting=True), gate_kit.CLEAN, "an operator restarts the engine"),
        (PREFLIGHT, Judgement(admission_blockers=(gate_kit.DRIFT,)), "gpu.persistence gpu3"),
        (PREFLIGHT, Judgement(missing=("gpu.count",)), "gpu.count has not run yet"),
    ],
)
def test_what_keeps_this_node_from_its_start_is_told_to_the_others(
    tmp_path: Path, gate: GateRecord, judgement: Judgement, why: str
) -> None:
    head = member(tmp_path)
    take(head, EnginePhase.ABSENT, gate, judgement)
    hear(head)
    take(head, EnginePhase.ABSENT, gate, judgement)
    assert head.record.stage is Stage.WAITING
    assert head.status(gate).waits_for[0].startswith(why)


def test_a_fault_of_the_node_ends_its_generation_and_the_engines_own_does_not(tmp_path: Path) -> None:
    head = member(tmp_path)
    take(head, EnginePhase.ABSENT)
    hear(head)
    take(head, EnginePhase.ABSENT)
    hear(head, stage="go", generation=head.record.generation, phase="warm", gate="member")
    serving = record(GateState.SERVING)
    assert take(head, EnginePhase.WARM, serving, Judgement(immediate=(gate_kit.HUNG,)))[1] is False
    assert take(head, EnginePhase.WARM, serving, Judgement(hard=(gate_kit.HEAT,)))[1] is True
    assert "gpu.thermal_margin gpu3" in head.record.reason


def test_a_generation_that_cannot_be_kept_is_not_started(tmp_path: Path) -> None:
    head = member(tmp_path / "none")
    take(head, EnginePhase.ABSENT)
    hear(head)
    assert word(take(head, EnginePhase.ABSENT)[0]) is not None
    assert head.record.stage is Stage.WAITING
    assert "cannot be written" in " ".join(head.status(PREFLIGHT).waits_for)


def test_a_disk_that_takes_something_again_arms_the_member_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    head = member(folder)
    take(head, EnginePhase.ABSENT)
    hear(head)
    take(head, EnginePhase.ABSENT)
    assert "cannot be written" in " ".join(head.status(PREFLIGHT).waits_for)
    folder.mkdir()
    head._clock.now_s += DISK_RETRY_S  # type: ignore[attr-defined]
    hear(head)
    assert word(take(head, EnginePhase.ABSENT)[0]) is None, "started, without anybody's help"
    assert json.loads((folder / "group-glm.json").read_text())["generation"] == head.record.generation


def test_nobody_is_called_into_a_generation_that_was_adopted(tmp_path: Path) -> None:
    (tmp_path / "group-glm.json").write_text(
        json.dumps({"boot_id": FakeClock().boot_id(), "generation": "a1"})
    )
    head = member(tmp_path)
    take(head, EnginePhase.WARM)
    said = head.status(PREFLIGHT)
    assert (said.stage, said.generation) == (Stage.GO, "a1")
    assert said.go_age_s > head.rules.timeout_s


def _published(publisher: Publisher, time: HandTime, status: MemberStatus, tmp_path: Path) -> None:
    seen = member(tmp_path).observation(PREFLIGHT)
    publication = published(record(GateState.MEMBER), at_s=time.now_s)
    publisher.publish(replace(publication, groups={"glm": GroupAnswer(status, seen, kit.KEY)}))


def test_the_answer_over_http_and_what_a_puller_makes_of_it(tmp_path: Path) -> None:
    time = HandTime()
    publisher = Publisher(time)
    with serve(publisher, tmp_path) as served:
        assert served.ask(f"/group/glm?nonce={NONCE}").status_code == 503
        _published(publisher, time, kit.says(1, gate="member", stage="go", generation="a1"), tmp_path)
        for path, code in (
            ("/group/glm", 400),
            ("/group/glm?nonce=xyz", 400),
            (f"/group/no?nonce={NONCE}", 404),
        ):
            reply = served.ask(path)
            assert (reply.status_code, "error" in reply.json()) == (code, True)
        for method in ("POST", "PUT", "DELETE"):
            assert served.ask(f"/group/glm?nonce={NONCE}", method).status_code == 405
        answer = unseal(kit.KEY, served.ask(f"/group/glm?nonce={NONCE}").content)
        assert (answer.nonce, answer.age_s, answer.generation) == (NONCE, 0.0, "a1")
        asyncio.run(_pull(served.port, publisher, time, tmp_path))


async def _pull(port: int, publisher: Publisher, time: HandTime, tmp_path: Path) -> None:
    """Fresh, then stale, then signed with another key, then of another member, then nobody."""
    group = Group.model_validate(group_of(port, period_s=5.0))
    # Rank 1 is asked at an address of its own; the server listens at another.
    other = group.members[1].model_copy(update={"address": "127.0.0.1", "data_address": "127.0.0.2"})
    group = group.model_copy(update={"members": [group.members[0], other]})
    clock, news = FakeClock(), []
    puller = Puller("glm", group, kit.KEY, clock, 5.0, lambda: news.append(1))
    await puller.pull(1)
    (peer,) = puller.peers
    assert (peer.error, peer.heard_mono_s, peer.joined) == ("", clock.now_s, "a1")
    assert peer.served_mono_s == clock.now_s and abs(peer.skew_s) > 1000, "the fake clock is far off"
    await puller.probe(1)
    assert "refused" in puller.peers[0].data_error
    time.now_s += 7
    await puller.pull(1)
    assert puller.peers[0].error == "its agent hangs: what it publishes is 7 s old"
    time.now_s -= 7
    puller._key = b"another key of the same length.."
    await puller.pull(1)
    assert puller.peers[0].wrong_key
    puller._key = kit.KEY
    _published(publisher, time, kit.says(2), tmp_path)
    await puller.pull(1)
    assert "list the members alike" in puller.peers[0].error
    assert puller.peers[0].heard_mono_s == clock.now_s
    assert (puller.peers[0].status or kit.says()).generation == "a1", "what was heard before stays known"


def test_ports_that_are_closed_are_let_through(tmp_path: Path) -> None:
    async def look() -> dict[tuple[int, int], str]:
        group = Group.model_validate(group_of(1, ports=[1], period_s=5.0))
        puller = Puller("glm", group, kit.KEY, FakeClock(), 5.0, lambda: None)
        await puller._look_at_ports(1, "127.0.0.1")
        return puller.blocked

    assert asyncio.run(look()) == {}


def test_a_sealed_answer_is_small_and_cheap() -> None:
    parts = {f"part{i}": "0" * 16 for i in range(13)}
    cuts = {f"node-{i}": 0.1 for i in range(63)}
    data = seal(kit.KEY, kit.says(parts=parts, data_cut_s=cuts, waits_for=("x" * 200,) * 5))
    assert len(data) < 8192
