"""The command line on outputs that take nothing: full disks, closed streams, missing folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sketchc.cli.main import run

ROOT = Path(__file__).parents[2]
RELU = str(ROOT / "examples" / "relu.sketch")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run `line` in a shell, where `$@` is the command line of sketchc."""
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "sketchc.cli.main"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    done = shell(f'"$@" check {RELU} > /dev/full')
    assert done.returncode == 2
    assert done.stderr == "error: cannot write: No space left on device\n"


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_change_nothing_else(streams: str) -> None:
    done = shell(f'"$@" check {RELU} {streams}')
    assert done.returncode == 0
    assert done.stderr == ""


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exhausted(_path: str) -> None:
        message = "Unable to allocate 7.28 TiB"
        raise MemoryError(message)

    monkeypatch.setattr("sketchc.cli.commands.check.sketch_files", exhausted)
    assert run(["check", RELU]) == 2
    assert capsys.readouterr().err == "error: not enough memory: Unable to allocate 7.28 TiB\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["lower", RELU, "-t", "cpp", "-q", "-o"],
        ["run", RELU, "--symbols", "M=2,N=3", "--out"],
    ],
)
def test_a_missing_folder_is_named_with_what_to_do(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing" / "file"
    assert run([*arguments, str(path)]) == 2
    message = f"error: cannot write {path}: No such file or directory; make its folder first\n"
    assert capsys.readouterr().err == message


UNDEFINED = """sketch scale {
    symbols: N;
    params: a: f32 = 2.0, g: i64 = 1;
    let: s = 1/(a - 2); d = N//(g - 1);
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;

    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, s, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""


@pytest.mark.parametrize(
    ("text", "status"), [(UNDEFINED, 0), (UNDEFINED.replace("Y[i*T:", "Y[i*T+1:"), 1)]
)
def test_divisors_that_are_0_for_the_defaults_are_left_to_the_launch(
    text: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scale.sketch"
    path.write_text(text)
    assert run(["check", str(path)]) == status
    assert run(["lower", str(path), "-t", "triton_cuda"]) == status
    capsys.readouterr()
    if status == 0:
        assert run(["run", str(path), "--symbols", "N=5", "--set", "a=3.0"]) == 1
        error = capsys.readouterr().err
        assert "SK0801" in error
        assert "the condition g - 1 >= 1 does not hold" in error
        assert "with g = 1" in error
