"""`sketchc run`: what it prints and writes, and one clear message for every misuse."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from sketchc.cli.main import run as sketchc

EXAMPLES = Path(__file__).parents[2] / "examples"
RMS = str(EXAMPLES / "rms.sketch")
SOFTMAX = str(EXAMPLES / "softmax.sketch")
X = np.random.default_rng(1).standard_normal((5, 13)).astype(np.float32)

SCALE = """sketch scale {
    symbols: M;
    params: factor: DTYPE = 2;
    tensors: X[M]: in DTYPE; Y[M]: out DTYPE;
    constexpr: T = 4 in [4, 8];
    require: M < 100;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, factor, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", X=X)
    np.save("x.npy", X)
    for dtype in ("f32", "bf16", "i32"):
        Path(f"{dtype}.sketch").write_text(SCALE.replace("DTYPE", dtype))
    Path("text.npz").write_text("not an archive")
    np.savez("objects.npz", X=np.array([{}, None], dtype=object))
    whole = Path("x.npz").read_bytes()
    Path("cut.npz").write_bytes(whole[: len(whole) // 2])
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes(byte ^ 0xFF for byte in whole[middle : middle + 40])
    Path("damaged.npz").write_bytes(damaged + whole[middle + 40 :])
    return tmp_path


def test_inputs_bind_the_symbols_and_outputs_are_written(folder, capsys):
    assert sketchc(["run", SOFTMAX, "--inputs", "x.npz", "--out", "y.npz"]) == 0
    shown = capsys.readouterr().out
    assert "M = 5, N = 13 (inputs of x.npz)" in shown
    assert "Y[5, 13] f32: min " in shown
    with np.load("y.npz") as outputs:
        expected = torch.softmax(torch.from_numpy(X).double(), 1).numpy()
        np.testing.assert_allclose(outputs["Y"], expected, rtol=1e-6)


def test_random_inputs_come_from_the_seed(folder, capsys):
    call = ["run", RMS, "--symbols", "B=2,F=3", "--symbols", "D1=4,D2=5", "--set", "eps=1e-5"]
    shown = []
    for seed in ("3", "3", "4"):
        assert sketchc([*call, "--seed", seed]) == 0
        shown.append(capsys.readouterr().out)
    assert "random signed inputs of seed 3" in shown[0]
    assert shown[0] == shown[1]
    assert shown[0].splitlines()[1] != shown[2].splitlines()[1]
    low, high = (float(shown[0].split(key)[1].split(",")[0]) for key in ("min ", "max "))
    assert low < 0 < high


def test_tile_sizes_do_not_change_what_is_printed(folder, capsys):
    call = ["run", RMS, "--symbols", "B=2,F=3,D1=7,D2=5", "--set", "eps=1e-5"]
    lines = set()
    for tile in (1, 3, 64):
        assert sketchc([*call, "--set", f"TILE_SIZE={tile}"]) == 0
        lines.add(capsys.readouterr().out.splitlines()[1])
    assert len(lines) == 1


def test_names_may_be_given_as_the_sketch_writes_them(folder, capsys):
    text = Path("f32.sketch").read_text().replace("M", "lambda").replace("X", "class")
    Path("words.sketch").write_text(text)
    assert sketchc(["run", "words.sketch", "--symbols", "lambda=5"]) == 0
    assert "lambda_ = 5" in capsys.readouterr().out
    np.savez("words.npz", **{"class": np.ones(5, np.float32)})
    assert sketchc(["run", "words.sketch", "--inputs", "words.npz"]) == 0


def test_empty_outputs(folder, capsys):
    assert sketchc(["run", SOFTMAX, "--symbols", "M=0,N=3"]) == 0
    assert "Y[0, 3] f32: empty" in capsys.readouterr().out


def test_bfloat16_files_hold_raw_values(folder, capsys):
    x = np.array([1.5, -2.0, 3.25], ml_dtypes.bfloat16)
    np.savez("b.npz", X=x)
    call = ["run", "bf16.sketch", "--inputs", "b.npz", "--out", "out.npz", "--set", "factor=3"]
    assert sketchc(call) == 0
    with np.load("out.npz") as outputs:
        actual = outputs["Y"].view(ml_dtypes.bfloat16)
    expected = torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16) * 3
    assert actual.astype(np.float32).tolist() == expected.float().tolist()


def test_conditions_and_bounds_are_diagnostics(folder, capsys):
    assert sketchc(["run", "f32.sketch", "--symbols", "M=100"]) == 1
    shown = capsys.readouterr().err
    assert "error[SK0801]" in shown
    assert "M = 100" in shown
    assert sketchc(["run", SOFTMAX, "--symbols", "M=1,N=9000"]) == 1
    shown = capsys.readouterr().err
    assert "the condition N <= 8192 does not hold" in shown
    assert "N = 9000" in shown
    Path("broken.sketch").write_text("sketch x {")
    assert sketchc(["run", "broken.sketch"]) == 1
    assert "error[SK01" in capsys.readouterr().err


MISUSES = [
    (["nowhere.sketch"], "cannot read nowhere.sketch"),
    ([SOFTMAX], "no size for M, N; give --symbols M=64,N=64"),
    ([SOFTMAX, "--symbols", "M=3"], "no size for N"),
    ([SOFTMAX, "--symbols", "M=3,N"], "--symbols takes NAME=VALUE, not 'N'"),
    ([SOFTMAX, "--symbols", "M=3,N=-1"], "N = -1 is negative"),
    ([SOFTMAX, "--symbols", "M=3,N=1.5"], "the size N must be a whole number"),
    ([SOFTMAX, "--symbols", "M=3,N=true"], "the size N must be a whole number"),
    ([SOFTMAX, "--symbols", "M=3,N=9,Q=1"], "Q is not a symbol of softmax"),
    ([SOFTMAX, "--symbols", f"M={10**30},N=9"], "M does not fit 64 bits"),
    ([SOFTMAX, "--symbols", f"M={10**12},N=9"], "GiB in the interpreter"),
    ([SOFTMAX, "--symbols", "M=3,N=9", "--set", "Q=1"], "no constexpr or param 'Q' to set"),
    ([SOFTMAX, "--symbols", "M=3,N=9", "--sketch", "other"], "it holds: softmax"),
    ([SOFTMAX, "--symbols", "M=3,N=9", "--seed", "-1"], "--seed takes 0 or more"),
    ([SOFTMAX, "--symbols", "M=3,N=9", "--out", "no/such/y.npz"], "cannot write no/such/y.npz"),
    ([RMS, "--symbols", "B=1,F=1,D1=1,D2=1"], "eps has no value; give --set eps=VALUE"),
    (
        [RMS, "--symbols", "B=1,F=1,D1=1,D2=9", "--set", "eps=1,TILE_SIZE=10000000000"],
        "choose smaller constants",
    ),
    ([SOFTMAX, "--inputs", "nowhere.npz"], "cannot read nowhere.npz"),
    ([SOFTMAX, "--inputs", "."], "cannot read ."),
    ([SOFTMAX, "--inputs", "x.npy"], "x.npy holds one array"),
    ([SOFTMAX, "--inputs", "text.npz"], "text.npz is not an .npz file"),
    ([SOFTMAX, "--inputs", "objects.npz"], "objects.npz is not a readable .npz file"),
    ([SOFTMAX, "--inputs", "cut.npz"], "cut.npz is not an .npz file"),
    ([SOFTMAX, "--inputs", "damaged.npz"], "damaged.npz is not a readable .npz file"),
    ([SOFTMAX, "--inputs", "x.npz", "--symbols", "M=4"], "M is 4 by the sizes given but 5"),
    (["f32.sketch", "--inputs", "x.npz"], "X has 2 axes, the sketch declares 1: X[M]: f32"),
    (["i32.sketch", "--inputs", "flat.npz"], "convert it first: array.astype('int32')"),
    (["f32.sketch", "--inputs", "other.npz"], "Z is not an input of scale; its inputs are: X"),
]


@pytest.mark.parametrize(("arguments", "message"), MISUSES)
def test_misuse_is_one_clear_message(folder, capsys, arguments, message):
    np.savez("flat.npz", X=X[0])
    np.savez("other.npz", X=X[0], Z=X[0])
    assert sketchc(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


def test_help_has_an_example(capsys):
    assert sketchc(["run", "--help"]) == 0
    assert "Examples:\n    sketchc run examples/softmax.sketch" in capsys.readouterr().out


def test_params_of_64_bits(folder, capsys):
    Path("i64.sketch").write_text(SCALE.replace("DTYPE", "i64"))
    for value in (2**63 - 1, -(2**63), 2**53 + 1):
        assert sketchc(["run", "i64.sketch", "--symbols", "M=5", "--set", f"factor={value}"]) == 0
    for value in (2**63, -(2**63) - 1, 10**30):
        assert sketchc(["run", "i64.sketch", "--symbols", "M=5", "--set", f"factor={value}"]) == 1
        assert f"`factor` cannot be {value}: its type is i64" in capsys.readouterr().err


LOADED_STRIDE = """sketch strided {
    symbols: N;
    tensors: X[N]: in f32; S[]: in i64; Y[N]: out f32;
    @llm_hint("parallel")
    for i in range(N):
        s = fetch(S[])
        x = alloc([1])
        load(X[i*s:i*s+1] -> x, pad=0)
        store(x -> Y[i:i+1])
}
"""


def test_a_loaded_stride_that_leaves_64_bits(folder, capsys):
    Path("strided.sketch").write_text(LOADED_STRIDE)
    for stride, status in ((1, 0), (2**60, 0), (2**62, 1), (2**63 - 1, 1), (-(2**63), 1)):
        np.savez("s.npz", X=X[0, :5], S=np.array(stride))
        assert sketchc(["run", "strided.sketch", "--inputs", "s.npz"]) == status
        assert ("SK0811" in capsys.readouterr().err) is (status == 1)
