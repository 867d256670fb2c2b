"""What is wrong with an inventory, in one line that begins with the cause.

Ansible goes on without a file that it cannot parse, tells each of its inventory plugins' views of it, and its
own deprecations before them. A file that is left out is nodes that nobody looks at: files are tried first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from agent.errors import ConfigError
from agent.profile_yaml import clean, shown_path, syntax_error

REMEDY = "correct the inventory, or --limit"
MOST_CHARS = 200
_YAML = (".yml", ".yaml")
_VARIABLES = ("group_vars", "host_vars")
#: What begins each of Ansible's messages.
_TAG = re.compile(r"\[(WARNING|ERROR|DEPRECATION WARNING)\]: ")
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def refuse_bad_yaml(sources: Sequence[Path], *, variables: bool = False) -> None:
    """ConfigError with file and line for YAML that cannot be parsed; with `variables` of those files too.

    Only the syntax is looked at: tags, vaults and templates are Ansible's.
    """
    for source in sources:
        for file in _files(source, variables):
            _refuse(file)


def inventory_fault(sources: Sequence[Path], said: str) -> ConfigError:
    """Ansible's complaint `said` as an error; raises the better one where a file is no YAML."""
    refuse_bad_yaml(sources, variables=True)
    return ConfigError(brief(said), remedy=REMEDY)


def brief(said: str) -> str:
    """Ansible's messages on one line: each once, no deprecation, cut (pure)."""
    head, *rest = _TAG.split(said)
    told = list(zip(rest[::2], rest[1::2], strict=True)) if rest else [("ERROR", head)]
    texts = [" ".join(text.split()) for kind, text in told if kind != "DEPRECATION WARNING"]
    return clean(" ".join(dict.fromkeys(texts)), MOST_CHARS)


def _files(source: Path, variables: bool) -> Iterator[Path]:
    """The YAML files that Ansible reads of a source, as far as they can be told by their names."""
    folder = source if source.is_dir() else source.parent
    if source.is_dir():
        yield from (file for file in sorted(source.iterdir()) if _is_yaml(file))
    elif source.suffix in _YAML:
        yield source
    for name in _VARIABLES if variables else ():
        yield from (file for file in sorted((folder / name).rglob("*")) if _is_yaml(file))


def _is_yaml(file: Path) -> bool:
    return file.suffix in _YAML and not file.name.startswith(".") and file.is_file()


def _refuse(file: Path) -> None:
    where = shown_path(file)
    try:
        content = file.read_bytes()
        for _ in yaml.parse(content, Loader=_LOADER):
            pass
    except OSError as cause:
        raise ConfigError(f"cannot be read: {cause.strerror or cause}", where=where) from cause
    except yaml.MarkedYAMLError as cause:
        raise syntax_error(cause, content.decode(errors="replace"), where) from cause
    except yaml.YAMLError as cause:
        problem = clean(" ".join(str(cause).split()), 120)
        raise ConfigError(f"not valid YAML: {problem}", where=where) from cause
