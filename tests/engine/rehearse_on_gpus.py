"""A rehearsal on real GPUs: `nodegate run` launches a tensor-parallel vLLM, which is then made to fail.

Not a test that CI can run. It prints one JSON document of what happened and how long each step took:

    python tests/engine/rehearse_on_gpus.py --vllm "vllm serve" --profile FILE --folder FOLDER

The profile has no engines; this script adds one over all its GPUs. It changes no setting of a GPU.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import make_tiny_model  # noqa: E402

from agent.sources.processes import ProcessStat, processes  # noqa: E402

API, ENGINE, AGENT_CHECK = 19470, 18100, 19471
#: Large enough that weights and KV cache show in NVML, small enough to start in a minute.
SIZES = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 2048,
}
ARGS = (
    "--max-model-len 2048 --max-num-seqs 16 --enforce-eager --gpu-memory-utilization 0.3 --load-format dummy"
)


CANARY = {"period_s": 3, "deadline_s": 5, "restart_after": 50}
#: From a canary's verdict to a closed gate.
SLACK_S = 1.0
NODEGATE = [sys.executable, "-c", "from agent.cli import main; main()"]


def get(port: int, path: str, body: dict[str, Any] | None = None, timeout_s: float = 30.0) -> tuple[int, str]:
    """One request to this machine; code 0 when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError as cause:
        return 0, str(cause)
    finally:
        connection.close()


def wait_for(what: str, probe: Callable[[], bool], patience_s: float) -> float:
    """Seconds until the probe is true; ends the rehearsal when it never is."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < patience_s:
        if probe():
            return round(time.monotonic() - began_s, 3)
        if b"quarantined" in get(API, "/readyz/main")[1].encode():
            break
        time.sleep(0.02)
    raise SystemExit(f"waited {patience_s:g} s in vain for {what}; {get(API, '/readyz/main')}")


def ready() -> bool:
    """Whether the gate is open."""
    return get(API, "/readyz/main")[0] == 200


def engine_processes() -> list[ProcessStat]:
    """The engine's processes: all of the session of the one that the daemon started."""
    (gate,) = json.loads(get(API, "/status")[1])["gates"]
    pid = (gate["process"] or {}).get("pid")
    return [stat for stat in processes() if pid and stat.session == pid and not stat.dead]


def one(name: str) -> ProcessStat:
    """The process of that name, the first of several."""
    return next(stat for stat in engine_processes() if stat.comm.startswith(name))


def written(folder: Path, base: Path, command: list[str], *, topo: bool) -> Path:
    """The model and the profile with the engine."""
    make_tiny_model.CONFIG.update(SIZES)
    make_tiny_model.main(folder / "model")
    profile = yaml.safe_load(base.read_text())
    slots = list(range(profile["gpus"]["count"]))
    # A GPU machine that is shared may forbid NVLink multicast; the rehearsal does not need it.
    names = ("PYTHONPATH", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
    passed = {name: os.environ[name] for name in names if name in os.environ}
    own = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    launch = {
        "command": command,
        "model": str(folder / "model"),
        "served_model_name": "tiny",
        "args": [*ARGS.split(), "--tensor-parallel-size", str(len(slots))],
        "env": {**own, **passed, "VLLM_CACHE_ROOT": str(folder / "cache")},
        "inherit_env": ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME"],
    }
    engine = {
        "gpus": slots,
        "port": ENGINE,
        "agent_check_port": AGENT_CHECK,
        "launch": launch,
        "start_deadline_s": 300,
        "canary": CANARY,
        "backoff": {"first_s": 0.2, "jitter": 0.0},
        "warmup": {"first_token_s": 5.0},
        "soak": {"duration_s": 20, "concurrent": 16, "prompt_tokens": 512, "max_tokens": 128},
    }
    profile |= {"mode": "manage", "engines": {"main": engine}, "api": {"host": "127.0.0.1", "port": API}}
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(profile))
    if topo:
        profile["topology"] = {**profile.get("topology", {}), "nccl_file": str(folder / "topo.xml")}
        nodegate("topo", "write", str(folder / "topo.xml"), "--profile", str(path))
        path.write_text(yaml.safe_dump(profile))
    return path


def nodegate(*words: str) -> dict[str, Any]:
    """One command, its exit code and what it printed."""
    done = subprocess.run([*NODEGATE, *words], capture_output=True, text=True, check=False, timeout=120)
    return {"words": words, "exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def hang(name: str) -> dict[str, Any]:
    """Stop a process for a while: the gate closes and opens again with the same engine."""
    victim = one(name)
    before = sorted(stat.pid for stat in engine_processes())
    os.kill(victim.pid, signal.SIGSTOP)
    closed_s = wait_for("a closed gate", lambda: not ready(), 60)
    health = get(ENGINE, "/health", timeout_s=5)[0]
    blocking = json.loads(get(API, "/readyz/main")[1]).get("blocking")
    os.kill(victim.pid, signal.SIGCONT)
    opened_s = wait_for("an open gate", ready, 60)
    same = before == sorted(stat.pid for stat in engine_processes())
    return {
        "stopped": victim.comm,
        "closed_after_s": closed_s,
        "engine_health_code_meanwhile": health,
        "blocking": blocking,
        "open_again_after_s": opened_s,
        "same_processes": same,
    }


def kill(name: str | None) -> dict[str, Any]:
    """Kill a process (None: the first): all end, the engine comes back."""
    old = engine_processes()
    first = min(old, key=lambda stat: stat.pid)
    victim = one(name) if name else next(stat for stat in old if stat.pid == stat.session)
    os.kill(victim.pid, signal.SIGKILL)
    closed_s = wait_for("a closed gate", lambda: not ready(), 30)
    keys = {stat.key for stat in old}
    gone_s = wait_for(
        "the end of all", lambda: not [s for s in processes() if s.key in keys and not s.dead], 60
    )
    held = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"],
        capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    opened_s = wait_for("an open gate", ready, 300)
    return {
        "killed": victim.comm if name else f"{first.comm} (API server)",
        "closed_after_s": closed_s,
        "all_gone_after_s": gone_s,
        "gpu_processes_then": [line for line in held if line],
        "open_again_after_s": opened_s,
    }


def start_daemon(folder: Path, log: Any, profile: Path) -> subprocess.Popen[bytes]:
    """The daemon as a process."""
    words = [*NODEGATE, "run", "--profile", str(profile), "--state-dir", str(folder / "state")]
    words += ["--run-dir", str(folder / "run"), "--log-dir", str(folder / "log")]
    return subprocess.Popen(words, stdout=log, stderr=log)


def adopt(daemon: subprocess.Popen[bytes], again: Callable[[], subprocess.Popen[bytes]]) -> Any:
    """SIGKILL the agent and start another: the engine stays the same, the gate is closed for a moment."""
    before = sorted(stat.pid for stat in engine_processes())
    daemon.kill()
    daemon.wait()
    successor = again()
    answered_s = wait_for("an answer", lambda: get(API, "/readyz/main")[0] > 0, 60)
    opened_s = wait_for("an open gate", ready, 60)
    same = before == sorted(stat.pid for stat in engine_processes())
    told = {"first_answer_after_s": answered_s, "open_after_that_s": opened_s, "same_processes": same}
    return successor, told


def rehearse(folder: Path, log: Any, profile: Path, told: dict[str, Any]) -> None:
    """The whole rehearsal; what is known when a step fails has been told."""
    told["bound_s"] = CANARY["period_s"] + CANARY["deadline_s"] + SLACK_S
    told["lint"] = nodegate("launch", "lint", "main", "--profile", str(profile))
    told["plan"] = nodegate("launch", "plan", "main", "--profile", str(profile))
    daemon = start_daemon(folder, log, profile)
    try:
        codes: set[int] = set()
        told["open_after_s"] = wait_for(
            "an open gate", lambda: codes.add(get(API, "/readyz/main")[0]) or ready(), 400
        )
        told["codes_on_the_way"] = sorted(codes)
        told["processes"] = sorted(stat.comm for stat in engine_processes())
        body = {"model": "tiny", "prompt": "count one two three", "max_tokens": 8}
        told["completion"] = get(ENGINE, "/v1/completions", body)
        told["gates_when_open"] = json.loads(get(API, "/status")[1])["gates"]
        told["hang"] = [hang("VLLM::EngineCor"), hang("VLLM::Worker_TP")]
        daemon, told["adopted"] = adopt(daemon, lambda: start_daemon(folder, log, profile))
        told["kill"] = [kill("VLLM::Worker_TP"), kill(None)]
        told["capture"] = nodegate("capture", str(folder / "capture"), "--redact", "--profile", str(profile))
        told["gates"] = json.loads(get(API, "/status")[1])["gates"]
        told["history"] = json.loads(
            nodegate("history", "--json", "--run-dir", str(folder / "run"))["stdout"]
        )
    finally:
        daemon.send_signal(signal.SIGTERM)
        began_s = time.monotonic()
        told["exit_code"] = daemon.wait(120)
        told["ended_after_s"] = round(time.monotonic() - began_s, 3)
        told["processes_left"] = [stat.comm for stat in processes() if stat.comm.startswith("VLLM")]


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--vllm", default="vllm serve", help="program and first arguments, up to `serve`")
    parser.add_argument("--topo", action="store_true", help="write an NCCL topology file and use it")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    profile = written(given.folder, given.profile, shlex.split(given.vllm), topo=given.topo)
    with (given.folder / "daemon.log").open("w") as log:
        told: dict[str, Any] = {}
        try:
            rehearse(given.folder, log, profile, told)
        finally:
            print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
