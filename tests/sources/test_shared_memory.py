"""Whose file in /dev/shm it is, and that only an ended engine's own files are removed."""

from __future__ import annotations

import os
from pathlib import Path

from agent.sources.shared_memory import mapped_by, mapped_files, own_files, remove_unheld

MAPS = """\
7f0000000000-7f0000001000 rw-s 00000000 00:19 12      {shm}/psm_one
7f0000001000-7f0000002000 rw-s 00000000 00:19 13      {shm}/psm_gone (deleted)
7f0000002000-7f0000003000 r--s 00000000 00:19 14      {shm}/model/weights.safetensors
7f0000003000-7f0000004000 r-xp 00000000 08:01 15      /usr/lib/libc.so.6
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
"""


def world(tmp_path: Path, maps: dict[int, str]) -> tuple[Path, Path]:
    shm, proc = tmp_path / "shm", tmp_path / "proc"
    shm.mkdir()
    for pid, text in maps.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "maps").write_text(text.format(shm=shm))
    return shm, proc


def test_only_living_files_at_the_top_of_dev_shm_are_an_engines(tmp_path: Path) -> None:
    shm, proc = world(tmp_path, {7: MAPS, 8: ""})
    assert mapped_files(7, shm, proc) == {"psm_one"}
    assert mapped_by([7, 8, 9], shm, proc) == {"psm_one"}


def test_what_nobody_maps_any_more_is_removed_and_nothing_else(tmp_path: Path) -> None:
    shm, proc = world(tmp_path, {7: MAPS})
    for name in ("psm_one", "psm_two", "older", "another_programs"):
        (shm / name).touch()
    since_s = (shm / "psm_two").stat().st_mtime - 10
    os.utime(shm / "older", (since_s - 1, since_s - 1))
    assert remove_unheld({"psm_one", "psm_two", "older", "never"}, since_s, shm, proc) == ("psm_two",)
    assert {file.name for file in shm.iterdir()} == {"psm_one", "older", "another_programs"}


def test_files_of_a_containers_own_dev_shm_are_not_the_hosts(tmp_path: Path) -> None:
    shm, proc = world(tmp_path, {7: MAPS, 8: ""})
    (shm / "psm_one").touch()
    inode = (shm / "psm_one").stat().st_ino
    assert own_files([7], shm, proc) == frozenset(), "the same name and another file"
    maps = f"7f00-7f01 rw-s 0 00:19 {inode} {shm}/psm_one\n7f00-7f01 rw-s 0 00:19 {inode} /x{shm}/psm_one\n"
    (proc / "8" / "maps").write_text(maps)
    assert own_files([7, 8, 9], shm, proc) == {"psm_one"}
