"""The console script `nodegate`: finds the command's module, runs it, and maps every end to an exit code.

Exit codes: 0 pass, 1 a check failed, 2 something is unknown, 3 could not run (bad usage, bad profile),
130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from agent import __version__
from agent.errors import AgentError

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_UNKNOWN = 2
EXIT_COULD_NOT_RUN = 3
EXIT_INTERRUPTED = 130
#: What a shell reports of a program that a closed pipe ended (128 + SIGPIPE).
EXIT_PIPE_CLOSED = 141

#: What writing to stdout fails with when its file system or terminal is gone.
_OUTPUT_LOST = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EBADF})

#: Command -> the module in agent.commands that registers it, in the order of `--help`.
COMMANDS: dict[str, str] = {
    "run": "run",
    "demo": "demo",
    "check": "check",
    "status": "status",
    "history": "history",
    "gate": "gate",
    "waive": "gate",
    "engine": "engine",
    "maintenance": "maintenance",
    "checklist": "checklist",
    "profile": "profile",
    "launch": "launch",
    "pins": "pins",
    "topo": "topo",
    "capture": "capture",
    "bundle": "bundle",
    "enforce": "enforce",
    "fleet": "fleet",
    "systemd": "systemd",
}


def build_app(only: str | None = None) -> typer.Typer:
    """The application with every command, or with just the one named: imports cost start-up time."""
    app = typer.Typer(
        name="nodegate",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Proves that an LLM serving node is healthy, launches its engine and lets traffic in on proof.",
    )
    app.callback()(_global_options)
    wanted = [COMMANDS[only]] if only in COMMANDS else list(dict.fromkeys(COMMANDS.values()))
    for name in wanted:
        importlib.import_module(f"agent.commands.{name}").register(app)
    return app


def _show_version(wanted: bool) -> None:
    """Answer `--version` before a command is asked for."""
    if wanted:
        sys.stdout.write(f"nodegate {__version__}\n")
        raise typer.Exit(EXIT_PASS)


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options in front of the command; `main` takes `--debug` out of the arguments wherever it stands."""
    del version, debug


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line and exit with its code."""
    _mend_streams()
    sys.exit(run_command_line(list(sys.argv[1:] if argv is None else argv)))


def _mend_streams() -> None:
    """Give a closed stream /dev/null, and have text that the terminal's encoding lacks shown as an escape.

    A descriptor 0, 1 or 2 that stayed closed would be given to the next file or socket, and what is meant
    for a person would be written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the kernel gives out the lowest number that is free
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 (kept until the process ends)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run_command_line(words: list[str]) -> int:
    """Run one command line; the exit code."""
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    first = next((word for word in words if not word.startswith("-")), None)
    try:
        code = _invoke(build_app(first), words)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as usage:
        return _usage_error(usage)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    except AgentError as error:
        return _failed(str(error), debug)
    except OSError as cause:
        if cause.errno not in _OUTPUT_LOST or cause.filename is not None:
            return _failed(f"internal error: {type(cause).__name__}: {cause}; --debug shows where", debug)
        _forget_stdout()
        return _failed(f"the output cannot be written: {cause.strerror}", debug)
    # The edge of the program: a defect must still end in one line and the code for "could not run".
    except Exception as defect:  # noqa: BLE001
        return _failed(f"internal error: {type(defect).__name__}: {defect}; --debug shows where", debug)
    return code


def _invoke(app: typer.Typer, words: list[str]) -> int:
    """Parse and run, not by typer's own `main`: it answers a closed pipe with 1, which here is a verdict."""
    command = typer.main.get_command(app)
    with command.make_context("nodegate", words) as context:
        code = command.invoke(context)
    return code if isinstance(code, int) else EXIT_PASS


def _usage_error(usage: typer.TyperException) -> int:
    """Say what is wrong with the command line; help alone (no arguments at all) is shown as it is."""
    text = usage.format_message()
    if type(usage).__name__ != "NoArgsIsHelpError":
        context = getattr(usage, "ctx", None)
        path = context.command_path if context is not None else "nodegate"
        text = f"nodegate: {_one_line(text)} (see `{path} --help`)"
    _say_error(text)
    return EXIT_COULD_NOT_RUN


def _failed(text: str, debug: bool) -> int:
    """One line on stderr, with the traceback above it when asked for."""
    trace = traceback.format_exc() if debug else ""
    _say_error(f"{trace}nodegate: {_one_line(text)}")
    return EXIT_COULD_NOT_RUN


def _say_error(text: str) -> None:
    """Write to stderr; where nobody can be told, the exit code must still be right."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _one_line(text: str) -> str:
    """The text with runs of blanks and line breaks made one space, other control characters made visible."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in " ".join(text.split()))


def _forget_stdout() -> None:
    """Put a harmless stream in stdout's place: the interpreter flushes it once more at exit."""
    sys.stdout = sys.__stderr__
