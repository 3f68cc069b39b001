"""Manifests of targets of documents: what `docspec check` passes, the other commands take, and what
they refuse, it says; names and languages by which one target could be taken for another."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sketchc.cli.main import run

Capture = pytest.CaptureFixture[str]
SKETCH = "mine/examples/scale.sketch"


@pytest.fixture(autouse=True)
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's folder with the target `mine`, as `docspec new` starts it; it is the working
    folder."""
    (tmp_path / "targets").mkdir()
    monkeypatch.chdir(tmp_path / "targets")
    monkeypatch.setenv("SKETCHC_TARGETS", str(tmp_path / "targets"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert run(["docspec", "new", "mine"]) == 0


def change(target: str, old: str, new: str) -> None:
    path = Path(target) / "docspec.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def start(name: str, suffix: str = ".c") -> None:
    """One more target, whose files end in `suffix`."""
    assert run(["docspec", "new", name]) == 0
    if suffix != ".c":
        change(name, '[".c"]', f'["{suffix}"]')
        for path in Path(name).glob("*.md"):
            path.write_text(path.read_text("utf-8").replace("scale.c", f"scale{suffix}"), "utf-8")
        Path(name, "examples", "scale.c").rename(Path(name, "examples", f"scale{suffix}"))


def checked(target: str, capsys: Capture) -> tuple[int, str]:
    """`docspec check`: the exit status, and what was printed."""
    capsys.readouterr()
    status = run(["docspec", "check", target])
    return status, "".join(capsys.readouterr())


def planned(target: str) -> int:
    return run(["lower", SKETCH, "-t", target, "--emit", "plan"])


#: (what stands in the manifest, what is there instead, what is said of it).
FAULTS = [
    ('target = "mine"', 'target = "other"', "target is 'other', and its folder 'mine'"),
    ('"error: expected "', '"("', "syntax is no pattern"),
    ('"error: expected "', '"a{99999999999}"', "syntax is no pattern"),
    ("timeout_seconds = 60", "timeout_seconds = nan", "must be a positive number"),
    ("timeout_seconds = 60", "timeout_seconds = inf", "must be a positive number"),
    ('["cc", "-O2"', '["cc\\u0000", "-O2"', "build holds a zero byte"),
    ('[".c"]', '[".c/x"]', "[language] needs suffixes"),
    ('[".c"]', '[".c", ".sketch"]', "files that end in .sketch are no kernels"),
    ('[".c"]', '[".c", ".cpp"]', "files that end in .cpp are C++ here, those of the target cpp"),
    ('name = "c"', 'name = "c++"', "the target cpp has another language 'c++'"),
    ('default_hardware = "cpu"', 'default_hardware = "none"', "none"),
    ('title = "C, called', f"x = {'[' * 5000}\n#", "this is not TOML"),
]


@pytest.mark.parametrize(("old", "new", "said"), FAULTS)
def test_what_other_commands_refuse_the_check_says(
    old: str, new: str, said: str, capsys: Capture
) -> None:
    assert planned("mine") == 0
    change("mine", old, new)
    assert planned("mine") == 2
    for asked in ("mine", "./mine", str(Path("mine").absolute())):
        status, told = checked(asked, capsys)
        assert (status, said in told) == (1, True), told
        assert re.search(r"^\S*mine/docspec\.toml(:\d+)?: ", told, re.MULTILINE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('["{python}", "{target}/runner.py"]', '["{python}", "{target}/runer.py"]'),
        ('build = ["cc", ', 'build = ["{target}/runer.py", "cc", '),
        ('files = ["runner.py"]', 'files = ["runner.py", "runer.py"]'),
    ],
)
def test_a_file_that_a_command_names_must_be_there(old: str, new: str, capsys: Capture) -> None:
    change("mine", old, new)
    status, told = checked("mine", capsys)
    assert (status, "mine/runer.py: this file is missing" in told) == (1, True), told
    # Nothing is paid for before somebody finds out.
    Path("task.py").write_text("import torch\n")
    Path("scale.c").write_text("void scale(void) {}\n")
    assert run(["gen", "task.py", "-t", "mine", "--coder", "llm", "--llm", "mailbox:box"]) == 2
    assert "missing: runer.py" in capsys.readouterr().err


def test_a_runner_that_only_a_command_names_is_a_file_of_the_folder(capsys: Capture) -> None:
    change("mine", 'files = ["runner.py"]', "files = []")
    assert checked("mine", capsys)[0] == 0


def test_documents_without_tools_are_no_target_of_ones_own(capsys: Capture) -> None:
    path = Path("mine/docspec.toml")
    text = path.read_text("utf-8")
    text = re.sub(r"(?ms)^\[(language|capabilities|toolchain|failures)\]$.*?(?=^\[|\Z)", "", text)
    path.write_text(text.replace("[basic]", 'language = "c++"\n[basic]', 1), "utf-8")
    assert planned("mine") == 2
    status, told = checked("mine", capsys)
    assert (status, "[capabilities] and [toolchain] are missing" in told) == (1, True), told


# ---------------------------------------------------------------- two targets


def test_targets_share_a_language_that_is_the_same(capsys: Capture) -> None:
    start("another")
    for name in ("mine", "another"):
        assert checked(name, capsys)[0] == 0
        assert planned(name) == 0


@pytest.mark.parametrize("suffix", [".kernel", ".cc1"])
def test_one_name_for_two_languages_is_refused(suffix: str, capsys: Capture) -> None:
    """The first by name stays usable, whatever lies beside it."""
    start("other", suffix)
    assert checked("mine", capsys)[0] == 0
    assert planned("mine") == 0
    status, told = checked("other", capsys)
    said = f"the target mine has another language 'c' (suffixes: .c there, {suffix} here)"
    assert (status, said in told) == (1, True), told
    assert planned("other") == 2
    assert said in capsys.readouterr().err
    change("other", 'name = "c"', 'name = "d"')
    assert checked("other", capsys)[0] == 0
    assert planned("other") == 0


def test_one_suffix_for_two_languages_is_refused(capsys: Capture) -> None:
    start("other")
    change("other", 'name = "c"', 'name = "d"')
    status, told = checked("other", capsys)
    said = "files that end in .c are C here, those of the target mine"
    assert (status, said in told) == (1, True), told
    assert planned("other") == 2
    assert planned("mine") == 0


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["Mine", "my-own", "my.own", "1st"])
def test_a_name_that_is_none_is_refused_by_all_alike(name: str, capsys: Capture) -> None:
    assert run(["docspec", "new", name]) == 2
    assert "a letter first" in capsys.readouterr().err
    Path("mine").rename(name)
    change(name, 'target = "mine"', f'target = "{name}"')
    status, told = checked(name, capsys)
    assert (status, "is no name" in told) == (1, True), told
    assert run(["verify", "x.c", "--task", "x.py", "-t", name]) == 2
    assert f"the folder's name '{name}' is no name of a target" in capsys.readouterr().err


def installed(distribution: str, spelled: str) -> None:
    """An environment, as the installation of `distribution` leaves it, whose files spell it so."""
    place = Path(os.environ["XDG_DATA_HOME"], "sketchc", f"{distribution}-1.0")
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    info = place / "lib" / "python3.11" / "site-packages" / f"{spelled}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {spelled}\nVersion: 1.0\n")


@pytest.mark.parametrize("written", ["My.Open-CL", "my-open-cl", "my_open.cl", "MY-OPEN-CL"])
@pytest.mark.parametrize("spelled", ["my_open_cl", "My_Open_CL", "My.Open_CL"])
def test_one_distribution_has_one_environment_however_it_is_spelled(
    written: str, spelled: str, capsys: Capture
) -> None:
    change("mine", "[toolchain]", f'[environment]\npackages = ["{written}==1.0"]\n[toolchain]')
    assert run(["toolchain", "list"]) == 0
    assert f"{written} 1.0 in an environment of its own" in capsys.readouterr().out
    installed("my-open-cl", spelled)
    assert run(["toolchain", "list"]) == 0
    told = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("mine"))
    assert told.split()[1] == "ready:"
