"""Small source trees that look like an installed engine, and launches of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fake_sources import FakeNode

from agent.launch.launch_profile import LaunchPlan, build_plan
from agent.launch.lint import lint
from agent.node_profile import NodeProfile
from agent.profile_loader import profile_from_dict
from agent.sources.launch_reading import LaunchReport, Severity

VLLM_ARG_UTILS = """
import argparse
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig
_OLD = "--log-config-file is deprecated and will be removed. Use --logging-config.file instead."
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="ModelConfig")
        group.add_argument("--model", **model_kwargs["model"])
        group.add_argument("--dtype", **model_kwargs["dtype"])
        group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        group.add_argument("--trust-remote-code", **model_kwargs["trust_remote_code"])
        group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        group.add_argument("--served-model-name", **model_kwargs["served_model_name"])
        group.add_argument("--hf-token", **model_kwargs["hf_token"])
        parallel_kwargs = get_kwargs(ParallelConfig)
        parallel_kwargs["all2all_backend"]["choices"].remove("x")
        for name in ():
            pass
        group.add_argument("--tensor-parallel-size", "-tp", **parallel_kwargs["tensor_parallel_size"])
        group.add_argument("--pipeline-parallel-size", "-pp", **parallel_kwargs["pipeline_parallel_size"])
        group.add_argument("--data-parallel-size", "-dp", **parallel_kwargs["data_parallel_size"])
        group.add_argument("--data-parallel-rank", **parallel_kwargs["data_parallel_rank"])
        group.add_argument("--nnodes", "-n", **parallel_kwargs["nnodes"])
        group.add_argument("--node-rank", "-r", **parallel_kwargs["node_rank"])
        group.add_argument("--master-addr", **parallel_kwargs["master_addr"])
        group.add_argument("--master-port", **parallel_kwargs["master_port"])
        group.add_argument("--distributed-executor-backend", **parallel_kwargs["executor"])
        group.add_argument("--all2all-backend", **parallel_kwargs["all2all_backend"])
        group.add_argument("--numa-bind", **parallel_kwargs["numa_bind"])
        group.add_argument("--numa-bind-nodes", **parallel_kwargs["numa_bind_nodes"])
        group.add_argument("--disable-custom-all-reduce", **parallel_kwargs["disable_custom_all_reduce"])
        cache_kwargs = get_kwargs(CacheConfig)
        group.add_argument("--gpu-memory-utilization", **cache_kwargs["gpu_memory_utilization"])
        group.add_argument("--enable-prefix-caching", **{**cache_kwargs["enable_prefix_caching"], "a": 1})
        group.add_argument("--mamba-cache-mode", **cache_kwargs["mamba_cache_mode"])
        group.add_argument("--offload-backend", **cache_kwargs["offload_backend"])
        group.add_argument("--cpu-offload-gb", **cache_kwargs["cpu_offload_gb"])
        group.add_argument("--cpu-offload-params", **cache_kwargs["cpu_offload_params"])
        scheduler_kwargs = get_kwargs(SchedulerConfig)
        group.add_argument("--max-num-seqs", **scheduler_kwargs["max_num_seqs"])
        group.add_argument("--max-num-batched-tokens", **scheduler_kwargs["max_num_batched_tokens"])
        group.add_argument("--enable-chunked-prefill", **scheduler_kwargs["enable_chunked_prefill"])
        group.add_argument("--cudagraph-capture-sizes", **scheduler_kwargs["sizes"])
        group.add_argument("--compilation-config", "-cc", **scheduler_kwargs["compilation"])
        group.add_argument("--optimization-level", **scheduler_kwargs["level"])
        group.add_argument("--log-config-file", action=DeprecatedAction, help=_OLD)
        group.add_argument("--disable-log-stats", action="store_true")
        group.add_argument("--unclear", **somewhere_else())
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--enable-log-requests", action=argparse.BooleanOptionalAction)
"""
VLLM_CONFIG = """
from typing import TYPE_CHECKING, Literal
if TYPE_CHECKING:
    Runner = Literal["generate"]
Base = Literal["bfloat16", "float16"]
Dtype = Literal["auto", Base]
class ModelConfig:
    model: str = "x"
    dtype: Dtype = "auto"
    max_model_len: int | None = None
    trust_remote_code: bool = False
    enforce_eager: bool = False
    served_model_name: str | list[str] | None = None
    hf_token: bool | str | None = None
class ParallelConfig:
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_rank: int | None = None
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str = ""
    master_port: int = 1
    executor: Literal["ray", "mp"] | str | None = None
    all2all_backend: Literal["a", "x"] = "a"
    numa_bind: bool = False
    numa_bind_nodes: list[int] | None = None
    disable_custom_all_reduce: bool = False
class CacheConfig:
    gpu_memory_utilization: float = 0.92
    enable_prefix_caching: bool = True
    mamba_cache_mode: Literal["align", "none"] = "none"
    offload_backend: Literal["auto", "uva", "prefetch"] = "auto"
    cpu_offload_gb: float = 0
    cpu_offload_params: set[str] = ()
class SchedulerConfig:
    max_num_seqs: int = 1
    max_num_batched_tokens: int = 1
    enable_chunked_prefill: bool = True
    sizes: list[int] | None = None
    compilation: "Optional[CompilationConfig]" = None
    level: int = 2
"""
VLLM_CLI = """
class BaseFrontendArgs:
    chat_template: str | None = None
    allowed_origins: list[str] = ()
    middleware: list[str] = ()
    def _customize(cls, frontend_kwargs):
        del frontend_kwargs["allowed_origins"]["nargs"]
        frontend_kwargs["middleware"]["action"] = "append"
        if "nargs" in frontend_kwargs["middleware"]:
            del frontend_kwargs["middleware"]["nargs"]
class FrontendArgs(BaseFrontendArgs):
    host: str | None = None
    port: int = 8000
    api_key: list[str] | None = None
def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--api-server-count", "-asc", type=int)
    parser.add_argument("--config", help="file")
"""
VLLM_ENVS = """
import os
environment_variables = {
    "VLLM_LOGGING_LEVEL": lambda: os.getenv("VLLM_LOGGING_LEVEL"),
    "VLLM_PP_LAYER_PARTITION": lambda: None,
    "VLLM_API_KEY": lambda: None,
}
"""
SGLANG = """
from sglang.srt.arg_groups.arg_utils import A, Arg, Derived
class Parallel:
    _NS_PATH = "parallel"
    tp_size: A[int, Arg(help="x", aliases=["--tensor-parallel-size", "--tp"])] = 1
    host: A[str, "Host."] = "127.0.0.1"
    port: A[int, "Port."] = 30000
    model_path: A[str, Arg(help="x", aliases=["--model"])]
    rank: A[int, Derived(doc="x")] = 0
    hidden: A[bool, Arg(help="x", no_cli=True)] = False
    trust_remote_code: A[bool, "Trust."] = False
    load_format: A[str, Arg(help="x", choices=["auto", "dummy"])] = "auto"
    names: A[Optional[List[str]], "Names."] = None
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--config", type=str)
        parser.add_argument("--enable-dp-attention", action=DeprecatedStoreTrueAction, help="Deprecated. No.")
"""


def vllm_site(folder: Path, version: str = "0.32.0", cli: str = "entrypoints/launchers/cli_args.py") -> Path:
    """A virtual environment with what nodegate reads of vLLM; returns its `vllm` program."""
    site = _site(folder, "vllm", version)
    files = {
        "vllm/__init__.py": "",
        "vllm/engine/arg_utils.py": VLLM_ARG_UTILS,
        "vllm/config/model.py": VLLM_CONFIG,
        f"vllm/{cli}": VLLM_CLI,
        "vllm/envs.py": VLLM_ENVS,
    }
    return _filled(folder, site, files, "vllm")


def sglang_site(folder: Path, version: str = "0.5.23") -> Path:
    """The same of SGLang, its fields where new versions have them."""
    site = _site(folder, "sglang", version)
    files = {
        "sglang/__init__.py": "",
        "sglang/srt/server_args.py": SGLANG.partition("class ServerArgs:")[2].join(["class ServerArgs:", ""]),
        "sglang/srt/arg_groups/fields/parallel.py": SGLANG.partition("class ServerArgs:")[0],
        "sglang/srt/environ.py": "class Envs:\n    SGLANG_LOG_MS = EnvBool(False)\n",
    }
    return _filled(folder, site, files, "sglang")


def _site(folder: Path, name: str, version: str) -> Path:
    site = folder / "lib" / "python3.11" / "site-packages"
    (site / f"{name}-{version}.dist-info").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    return site


def _filled(folder: Path, site: Path, files: dict[str, str], name: str) -> Path:
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    script = folder / "bin" / name
    script.parent.mkdir(exist_ok=True)
    (folder / "bin" / "python3").symlink_to(sys.executable)
    script.write_text(f"#!{folder}/bin/python3\nimport sys\n")
    script.chmod(0o755)
    return script


def cpu_profile(launch: dict[str, Any]) -> NodeProfile:
    """A node without GPUs and one engine `e`."""
    engine = {"gpus": [], "port": 18000, "launch": launch}
    node = {"node": "cpu", "mode": "manage", "gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0}}
    return profile_from_dict({**node, "fabric": {"kind": "none"}, "engines": {"e": engine}}).profile


def launch_of(program: Path, *args: str, **more: Any) -> dict[str, Any]:
    """A launch of the program with these arguments."""
    return {"command": [str(program), "serve"], "model": "tiny", "args": list(args), **more}


def plan_of(profile: NodeProfile, node: FakeNode | None = None, name: str = "e") -> LaunchPlan:
    """The plan of an engine."""
    node = node or FakeNode({"nvml": {"system": {}, "gpus": []}})
    return build_plan(profile, name, node.sources, {"PATH": "/usr/bin"})


def linted(launch: dict[str, Any], files: dict[str, str] | None = None) -> LaunchReport:
    """The report on a launch on a node without GPUs, with some files on it."""
    profile = cpu_profile(launch)
    node = FakeNode({"nvml": {"system": {}, "gpus": []}, "files": files or {}})
    plan = plan_of(profile, node)
    return lint(plan, profile.engines["e"], tree=node.sources.tree, fabric=profile.fabric, home="/home/e")


def told(report: LaunchReport, severity: Severity = Severity.ERROR) -> dict[str, str]:
    """What is said under each heading, with what to do."""
    return {p.where: f"{p.text}; {p.remedy}" for p in report.problems if p.severity is severity}
