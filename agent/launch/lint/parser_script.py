"""Runs in the engine's own Python (never in nodegate's): parses a command line with the engine's own parser.

Arguments: engine, JSON list of the command line after the program, then `config` to make the engine's
configuration too, `dir=FOLDER` to work there. The last line of the output is a mark and a JSON object
{step, error}; an empty error means that it was taken.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import sys

MARK = "NODEGATE-PARSER "
PARSERS = (
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
FLEXIBLE = ("vllm.utils.argparse_utils", "vllm.utils")


def first(modules: tuple[str, ...], name: str) -> object:
    """The first of several modules that has a name; they have moved with versions."""
    last: Exception = ImportError("no module named")
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as cause:
            last = cause
    raise last


def vllm(arguments: list[str], config: bool) -> tuple[str, str]:
    """`vllm serve`."""
    make, flexible = first(PARSERS, "make_arg_parser"), first(FLEXIBLE, "FlexibleArgumentParser")
    parser = make(flexible(prog="vllm serve"))  # type: ignore[operator]
    namespace, error = parse(parser, arguments)
    if error or not config:
        return "parser", error
    namespace.model = namespace.model_tag or namespace.model  # type: ignore[attr-defined]
    engine_args = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
    try:
        engine_args.from_cli_args(namespace).create_engine_config()
    except Exception as cause:  # noqa: BLE001 - whatever the engine says is the answer
        return "config", f"{type(cause).__name__}: {cause}"
    return "config", ""


def sglang(arguments: list[str], _config: bool) -> tuple[str, str]:
    """`sglang serve`."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return "parser", parse(parser, arguments)[1]


def parse(parser: object, arguments: list[str]) -> tuple[object, str]:
    """What the parser makes of the arguments, and what it complains of."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser.parse_args(arguments), ""  # type: ignore[attr-defined]
    except SystemExit:
        lines = said.getvalue().strip().splitlines() or ["it ended without a word"]
        return None, lines[-1].partition("error: ")[2] or lines[-1]
    except Exception as cause:  # noqa: BLE001 - types and configuration files raise what they like
        return None, f"{type(cause).__name__}: {cause}"


def main(words: list[str]) -> int:
    """Answer on the last line of the output."""
    engine, arguments, config = words[0], json.loads(words[1]), "config" in words[2:]
    try:
        for word in words[2:]:
            if word.startswith("dir="):
                os.chdir(word[4:])
        step, error = (vllm if engine == "vllm" else sglang)(arguments, config)
    except Exception as cause:  # noqa: BLE001 - the engine cannot even be imported: that is the answer
        step, error = "import", f"{type(cause).__name__}: {cause}"
    print(f"\n{MARK}{json.dumps({'step': step, 'error': error})}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
