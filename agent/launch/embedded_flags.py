"""The embedded engine's command line: its own flags, and those of the engine it stands for, accepted unused.

SIMULATED.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from agent.launch_parts import EngineKind

#: Flags of `vllm serve` that take a value.
_VALUED = """
all2all-backend block-size cpu-offload-gb data-parallel-size distributed-executor-backend
dtype gpu-memory-utilization kv-cache-dtype kv-cache-memory-bytes kv-transfer-config load-format
mamba-cache-mode master-addr master-port max-model-len max-num-batched-tokens max-num-seqs moe-backend
nnodes node-rank numa-bind-cpus offload-backend performance-mode pipeline-parallel-size quantization
reasoning-parser seed shutdown-timeout tensor-parallel-size tokenizer tool-call-parser
"""
#: Flags of `vllm serve` that are there or not.
_SWITCHES = """
async-scheduling disable-custom-all-reduce enable-auto-tool-choice enable-chunked-prefill enable-eplb
enable-expert-parallel enable-fault-tolerance enable-log-requests enable-prefix-caching
enable-server-load-tracking enforce-eager headless language-model-only no-async-scheduling
no-enable-prefix-caching numa-bind trust-remote-code
"""
#: Flags of `sglang.launch_server` that take a value, and those that are there or not.
_SGLANG_VALUED = """
attention-backend chunked-prefill-size context-length cuda-graph-max-bs data-parallel-size
disaggregation-mode dist-init-addr dp-size dtype ep-size grammar-backend kv-cache-dtype
max-prefill-tokens max-running-requests max-total-tokens mem-fraction-static moe-runner-backend nnodes
node-rank page-size pp-size quantization reasoning-parser schedule-policy tensor-parallel-size
tokenizer-path tool-call-parser tp-size
"""
_SGLANG_SWITCHES = """
disable-cuda-graph disable-custom-all-reduce disable-radix-cache enable-cache-report
enable-dp-attention enable-metrics enable-mixed-chunk skip-server-warmup trust-remote-code
"""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line as the engine that `--as` names would; `kind` and `longest` are filled in."""
    before = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    before.add_argument("--as", dest="kind", choices=[*EngineKind], default=EngineKind.VLLM)
    kind = EngineKind(before.parse_known_args(words)[0].kind)
    options = parser(kind).parse_args(words)
    longest = options.context_length if kind is EngineKind.SGLANG else options.max_model_len
    options.kind, options.longest = kind, int(longest) if longest else None
    return options


def parser(kind: EngineKind = EngineKind.VLLM) -> argparse.ArgumentParser:
    """Read a command line as vLLM would; an unknown flag ends with exit code 2, as there."""
    result = argparse.ArgumentParser(
        prog="embedded_engine",
        description="A SIMULATED engine with the interface of a vLLM server",
        allow_abbrev=False,
    )
    result.add_argument("--as", dest="kind", help="engine to stand for: vllm or sglang")
    if kind is EngineKind.SGLANG:
        result.add_argument("--model-path", dest="model", default="simulated", help="nothing is loaded")
    else:
        result.add_argument("model", nargs="?", default="simulated", help="model name; nothing is loaded")
    result.add_argument("--host", default="127.0.0.1", help="address to listen at")
    result.add_argument("--port", type=int, default=8000, help="port to listen at")
    result.add_argument("--served-model-name", help="name that clients ask for")
    result.add_argument("--api-key", help="key that clients must send (or VLLM_API_KEY)")
    result.add_argument("--startup-s", type=float, default=1.5, help="seconds from start to healthy")
    result.add_argument("--token-s", type=float, default=0.005, help="seconds that a token takes")
    result.add_argument(
        "--ignore-sigterm", action="store_true", help="be as stubborn as vLLM while it starts"
    )
    sglang = kind is EngineKind.SGLANG
    for name in (_SGLANG_VALUED if sglang else _VALUED).split():
        result.add_argument(f"--{name}", help="accepted, not used")
    for name in () if sglang else ("cpu-offload-params", "numa-bind-nodes"):
        result.add_argument(f"--{name}", nargs="*", help="accepted, not used")
    for name in (_SGLANG_SWITCHES if sglang else _SWITCHES).split():
        result.add_argument(f"--{name}", action="store_true", help="accepted, not used")
    return result
