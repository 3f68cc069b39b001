"""Files are replaced whole or not at all, whoever reads and writes them meanwhile."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sketchc.agents.run.run import RunFolder, require_own_folder
from sketchc.agents.suites.run import SuiteFolder
from sketchc.base.diagnostics import UsageError
from sketchc.base.files import replace_file, written_for


def test_readers_see_one_content_or_the_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [str(number) * 200_000 for number in range(4)]
    replace_file(path, contents[0])
    over = threading.Event()

    def write(content: str) -> None:
        for _ in range(30):
            replace_file(path, content)

    seen = set()

    def read() -> None:
        while not over.is_set():
            seen.add(path.read_text("utf-8"))

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    assert seen <= set(contents)
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_file(link, b"new", durable=True)
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    replace_file(path, "newer", 0o755)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_what_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "inner").touch()
    with pytest.raises(OSError, match="folder"):
        replace_file(folder, "a file in the place of a folder")
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "file", "text")


def _killed_while_writing(path: Path) -> None:
    """Have a process write a file, and end where it would take its place: nothing is undone."""
    path.parent.mkdir(exist_ok=True)
    code = (
        "import os, sys; os.replace = lambda *names: os._exit(9)\n"
        "from sketchc.base.files import replace_file; replace_file(sys.argv[1], 'new')"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert not path.exists()
    (left,) = path.parent.iterdir()
    assert written_for(left.name) == path.name


def test_a_run_that_is_killed_over_its_first_file_leaves_its_folder_free(tmp_path: Path) -> None:
    run, suite, other = (tmp_path / name for name in ("run", "suite", "other"))
    run.mkdir()
    _killed_while_writing(run / "run" / "run.json")
    require_own_folder(RunFolder(run))
    _killed_while_writing(suite / "suite.json")
    with SuiteFolder(suite).lock():
        pass
    _killed_while_writing(other / "notes")
    with pytest.raises(UsageError, match="other holds other files"):
        require_own_folder(RunFolder(other))
    with pytest.raises(UsageError, match="other holds other files"):
        SuiteFolder(other).lock()
