"""Tasks whose modules hold tensors that are neither parameters nor buffers: these are tensors of
the kernel like the others, and integers among them keep to what they may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_dropin import run as run_apart
from test_verify_modules import IN_TRITON
from toolchains import require
from verified_files import edited, judge, write

from sketchc.cli.main import run

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
TAIL = "\n\ndef get_init_inputs():\n    return [70]\n"
#: A table larger than what a task may make for itself in forward; a state that forward writes, in
#: place and anew; a scale beside the parameters of a module within.
TASKS = {
    "written": """    def __init__(self, n):
        super().__init__()
        self.table = torch.randn(n, n)
        self.hidden = torch.zeros(4, n)

    def forward(self, x, h):
        self.hidden.copy_(h)
        self.hidden = torch.tanh(x @ self.table + self.hidden)
        return self.hidden * 2.0


def get_inputs():
    return [torch.randn(4, 70), torch.randn(4, 70)]
""",
    "within": """    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, 5)
        self.linear.scale = torch.tensor(0.5)

    def forward(self, x):
        return self.linear(x) * self.linear.scale


def get_inputs():
    return [torch.randn(9, 70)]
""",
    "places": """    def __init__(self, n):
        super().__init__()
        self.places = torch.arange(n).flip(0)
        self.register_buffer("bias", torch.arange(n))

    def forward(self, x):
        return x[:, self.places] * 2.0 + self.bias


def get_inputs():
    return [torch.randn(9, 70)]
""",
}


def written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(HEAD + TASKS[name] + TAIL)
    return path


@pytest.mark.sweep
@pytest.mark.parametrize("name", TASKS)
def test_a_kernel_of_such_a_task_passes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So does its drop-in, which takes the tensors from the module as they are by then."""
    require("cpp")
    folder = tmp_path / "out"
    arguments = ["gen", str(written(tmp_path, name)), "-t", "cpp", "-o", str(folder)]
    assert run(arguments) == 0, capsys.readouterr().out
    (module,) = (path for path in folder.glob("*.py") if "class ModelNew" in path.read_text())
    printed, wrong = run_apart(
        f"""
import importlib, sys, torch
sys.path.insert(0, {str(folder)!r})
module = importlib.import_module({module.stem!r})
torch.manual_seed(1)
new, old = module.ModelNew(70).eval(), module.Model(70).eval()
for one, other in zip(new.modules(), old.modules()):
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            changed = value.flip(0) if value.dim() else value * 3.0
            setattr(one, name, changed)
            setattr(other, name, changed.clone())
old.load_state_dict(new.state_dict())
with torch.no_grad():
    for _ in range(2):
        inputs = module.get_inputs()
        torch.testing.assert_close(new(*inputs), old(*inputs), rtol=1e-4, atol=1e-4)
print("done")
""",
        tmp_path,
        folder,
    )
    assert printed.endswith("done\n"), wrong[-2000:]


def test_a_model_that_others_wrote_gets_them_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("triton_cuda")
    task = tmp_path / "task.py"
    task.write_text(
        f"{HEAD}    def __init__(self, n):\n        super().__init__()\n"
        "        self.bias = torch.randn(n)\n\n"
        "    def forward(self, x):\n        return torch.relu(x + self.bias) * 2.0\n\n\n"
        f"def get_inputs():\n    return [torch.randn(9, 70)]\n{TAIL}"
    )
    plain = edited(IN_TRITON, ("nn.Parameter(torch.randn(width))", "torch.zeros(width)"))
    # It takes the values that the constructor gives, which the task keeps then; or others.
    own = plain.replace("self.bias", "self.offset").replace("torch.zeros", "torch.randn")
    sources = {
        "plain.py": plain,
        "parameter.py": IN_TRITON,
        "own.py": own,
        "other.py": own.replace("torch.randn(width)", "torch.zeros(width)"),
    }
    _, verdicts = judge(capsys, write(tmp_path, sources), task, "triton_cuda")
    passed = {name for name, verdict in verdicts.items() if not verdict["failure"]}
    assert passed == {"plain.py", "parameter.py", "own.py"}, verdicts
    kept = {n for n, v in verdicts.items() if any("the task keeps" in s for s in v["notes"])}
    assert kept == {"own.py", "other.py"}
