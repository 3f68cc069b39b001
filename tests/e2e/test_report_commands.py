"""The command that a page prints shows the failure again: it is run, and the verdicts are compared.

Whatever decides a verdict is different from its default here: the entry, the sketch that says how a
kernel is called (one of two in its file), constants and params, the seed, the bounds on time.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from repeating import command_of, outcome, repeated
from toolchains import require

from sketchc.cli.main import run

TASK = """import torch


def thrice(x: torch.Tensor) -> torch.Tensor:
    return x + x + x


def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(300)]
"""

SKETCHES = """sketch thrice {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 64;

    @llm_hint("parallel", "coreidx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, 3.0, x)
        store(x -> Y[i*T:(i+1)*T])
}

sketch scaled {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    params: S: f32;
    constexpr: T = 64;

    @llm_hint("parallel", "coreidx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, S, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""

#: Wrong at one size alone, which only the constant of the sketch has tried.
CPP = """#include <cstdint>

extern "C" int64_t twice(const float *X, float *Y, int64_t N)
{
    for (int64_t i = 0; i < N; ++i) {
        Y[i] = 2.0f * X[i];
    }
    return 0;
}

extern "C" int64_t scaled(const float *X, float *Y, int64_t N, double S)
{
    for (int64_t i = 0; i < N; ++i) {
        Y[i] = static_cast<float>(S) * X[i] + (N == 3372 && i == 7 ? 1.0f : 0.0f);
    }
    return 0;
}
"""

MODEL = """import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
"""

#: Not the value that `%g` would write.
FACTOR = 2.0000000001


class Made:
    """Files of a verification in a folder with spaces, and what was found."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder / "a folder  (with 'signs')"
        self.folder.mkdir()
        self.capsys = capsys
        self.store = self.folder / "store.sqlite"
        self.page = self.folder / "page.html"
        self.verdict: dict[str, Any] = {}

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def verify(self, file: str, *more: str, target: str = "cpp") -> None:
        """Verify what fails, and keep the verdict in `verdict.json` and in the store."""
        self.capsys.readouterr()
        words = ["verify", file, "--target", target, "--json", "--store", str(self.store), *more]
        assert run(words) == 1
        text = self.capsys.readouterr().out
        self.verdict = json.loads(text)
        self.write("verdict.json", text)

    def report(self, *words: str) -> str:
        """Make the page; returns its text."""
        assert run(["report", *words, "-o", str(self.page)]) == 0
        return self.page.read_text()

    def stored(self) -> str:
        """The page of the verdict in the store."""
        self.capsys.readouterr()
        assert run(["store", "list", "verdicts", "--json", "--store", str(self.store)]) == 0
        (row,) = json.loads(self.capsys.readouterr().out)
        return self.report(row["id"], "--store", str(self.store))

    def same(self) -> bool:
        return outcome(repeated(self.page, self.capsys)) == outcome(self.verdict)


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Made:
    require("cpp")
    return Made(tmp_path, capsys)


def test_of_a_kernel_by_others(made: Made) -> None:
    task = made.write("tasks.py", TASK)
    kernel, sketches = made.write("mine.cpp", CPP), made.write("both.sketch", SKETCHES)
    common = ["--task", f"{task}:twice", "--entry", "scaled", "--timeout", "45"]
    common += ["--signature", sketches, "--sketch", "scaled", "--task-timeout", "400"]
    made.verify(kernel, *common, "--set", f"T=3371,S={FACTOR!r}")
    assert made.verdict["failure"] == "numerical"
    assert outcome(made.verdict)["first"]["shape"]["symbols"] == {"N": 3372}
    made.report(made.write("verdict.json", json.dumps(made.verdict)))
    words = command_of(made.page)
    expected = {"--entry": "scaled", "--signature": sketches, "--sketch": "scaled"}
    expected |= {"--task": f"{task}:twice", "--timeout": "45.0", "--task-timeout": "400.0"}
    expected |= {"--seed": str(made.verdict["seed"]), "--target": "cpp", "--hardware": "cpu"}
    assert expected.items() <= dict(pairwise(words)).items()
    assert f"S={FACTOR!r}" in words
    assert made.same()
    # The store says the same; and says so where its files are there no longer.
    assert "write the texts" not in made.stored()
    assert command_of(made.page) == words
    made.write("both.sketch", SKETCHES.replace("64", "32"))
    assert "To repeat it, write the texts that were verified to" in made.stored()


def test_the_store_keeps_the_signature(made: Made) -> None:
    task = made.write("tasks.py", TASK)
    kernel, sketches = made.write("mine.cpp", CPP), made.write("both.sketch", SKETCHES)
    common = ["--task", f"{task}:twice", "--entry", "scaled", "--sketch", "scaled"]
    made.verify(kernel, *common, "--signature", sketches, "--set", "T=3371,S=2")
    where = ["--store", str(made.store)]
    made.capsys.readouterr()
    assert run(["store", "list", "verdicts", "--json", *where]) == 0
    (row,) = json.loads(made.capsys.readouterr().out)
    exported = made.folder / "store.jsonl"
    assert run(["store", "export", "--format", "jsonl", "-o", str(exported), *where]) == 0
    made.store = made.folder / "copy.sqlite"
    where = ["--store", str(made.store)]
    assert run(["store", "import", str(exported), *where]) == 0
    # Nothing but the verdict holds the sketch: it stays as long as that.
    assert run(["store", "gc", "--older-than", "0", *where]) == 0
    made.capsys.readouterr()
    assert run(["store", "show", row["id"], "--json", *where]) == 0
    assert json.loads(made.capsys.readouterr().out)["signature"] == SKETCHES
    assert run(["store", "show", row["id"], *where]) == 0
    assert SKETCHES.strip() in made.capsys.readouterr().out
    assert run(["store", "gc", "--older-than", "0", "--keep", "0", "--json", *where]) == 0
    assert json.loads(made.capsys.readouterr().out)["rows"]["texts"] == 3


def test_of_a_sketch_among_several(made: Made) -> None:
    task, sketches = made.write("tasks.py", TASK), made.write("both.sketch", SKETCHES)
    common = ["--task", f"{task}:twice", "--sketch", "scaled", "--set", "S=2.5", "--set", "T=48"]
    made.verify(sketches, *common)
    assert made.verdict["failure"] == "design"
    made.report(str(made.folder / "verdict.json"))
    assert made.same()
    made.stored()
    assert made.same()


def test_of_a_model_and_of_what_is_no_kernel(made: Made) -> None:
    task = made.write("tasks.py", TASK)
    found = {}
    for name, text in (("new.py", MODEL), ("torn.py", "class ModelNew(\n"), ("none.cpp", "\n")):
        made.verify(made.write(name, text), "--task", f"{task}:thrice")
        made.report(str(made.folder / "verdict.json"))
        assert made.same()
        found[name] = made.verdict["failure"]
    assert found == {"new.py": "policy", "torn.py": "syntax", "none.cpp": "api_misuse"}


def test_a_folder_or_a_file_is_taken_whatever_the_store(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--store` says where ids are looked up: what is here is no id."""
    task = made.write("tasks.py", TASK)
    made.verify(made.write("torn.cpp", "{{"), "--task", f"{task}:twice")
    where = ["--store", str(made.store)]
    assert "syntax" in made.report(str(made.folder / "verdict.json"), *where)
    out = made.folder / "out"
    sketch = made.write("one.sketch", SKETCHES[: SKETCHES.index("sketch scaled")])
    words = ["gen", f"{task}:thrice", "-t", "cpp", "--no-bench", "-q", "--workflow", "coder-only"]
    assert run([*words, "--sketch", sketch, "-o", str(out), *where]) == 0
    made.capsys.readouterr()
    assert run(["report", str(out), *where]) == 0
    assert capsys.readouterr().out == f"{out / 'report.html'}\n"
    for words, said in (
        (["nothing-here"], "no id in the store begins with 'nothing-here'"),
        ([str(out), "3f2a"], "is a folder: a run has a page of its own"),
        ([str(made.folder / "verdict.json"), "3f2a"], "3f2a is no file here"),
    ):
        assert run(["report", *words, *where, "-o", str(made.page)]) == 2
        assert said in capsys.readouterr().err
