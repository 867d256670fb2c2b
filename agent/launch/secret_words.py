"""Which flags and variables of a launch hold secrets, by their names; and a launch as it may be shown (pure).

Secrets belong into launch.env_file. One that stands in flags, in launch.env or in podman's own arguments all
the same is in the profile, but must not be carried on into output that is pasted, logs and the journal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

HIDDEN = "***"
SECRET_FLAG = re.compile(r"key$|token$|password|secret")
_SECRET_NAME = re.compile(r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|KEY|TOKEN|PASSWORD|PASSWD|SECRET)(?:$|_)")
#: argparse takes beginnings of names too.
_WHOLE = ("--api-key", "--admin-api-key", "--hf-token", "--ssl-keyfile-password")
_SHORTEST_BEGINNING = len("--api")
_NOT_SECRET = frozenset({"--ssl-keyfile"})


def is_secret_flag(name: str) -> bool:
    """Whether the values of a flag (with dashes, without `=`) are secret."""
    if not name.startswith("--") or name in _NOT_SECRET:
        return False
    begins = len(name) >= _SHORTEST_BEGINNING and any(whole.startswith(name) for whole in _WHOLE)
    return begins or SECRET_FLAG.search(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether the value of an environment variable is secret."""
    return _SECRET_NAME.search(name.upper()) is not None


def shown_argv(argv: Sequence[str]) -> list[str]:
    """The command line with every secret hidden."""
    result = list(argv)
    for at, secret in _secrets(argv):
        if secret:
            result[at] = f"{result[at].removesuffix(secret)}{HIDDEN}"
    return result


def shown_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables with every secret hidden."""
    return {name: HIDDEN if value and is_secret_variable(name) else value for name, value in env.items()}


def secret_values(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Every secret of a launch that its argv and environment hold."""
    found = [secret for _, secret in _secrets(argv)]
    found += [value for name, value in env.items() if is_secret_variable(name)]
    return tuple(dict.fromkeys(filter(None, found)))


def _secrets(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Index and text of each secret: what follows `=`, or all that follows up to the next flag."""
    secret = variable = False
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if variable:  # podman's `--env NAME=VALUE`, `-e NAME=VALUE`
            variable = False
            yield from _assigned(at, word)
        elif word in ("--env", "-e"):
            secret, variable = False, True
        elif name == "--env" and equals:
            secret = False
            yield from _assigned(at, value)
        elif word.startswith("--"):
            secret = is_secret_flag(name)
            if secret and equals:
                secret = False
                yield at, value
        elif secret:
            yield at, word


def _assigned(at: int, text: str) -> Iterator[tuple[int, str]]:
    name, _, value = text.partition("=")
    if value and is_secret_variable(name):
        yield at, value
