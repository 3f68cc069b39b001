"""One decoder layer as of a model of 1.7 billion parameters, in bfloat16: PyTorch eager,
torch.compile, torch.compile(mode="max-autotune-no-cudagraphs"), and the layer compiled with kernels
of sketches as operators in it. Microseconds of a call; without CUDA graphs, then with them.

    python benchmarks/decoder_layer.py build FOLDER            # drop-ins; no GPU is needed
    python benchmarks/decoder_layer.py run FOLDER [--json FILE] [--only SETTING...]
    python benchmarks/decoder_layer.py show FILE

The layer has 2,048 features, 16 heads of queries and 8 of keys with 128 elements, 6,144 inner
features, RMSNorm, RoPE, SwiGLU and random weights. Settings are prefill of 512 and 2,048 tokens,
and one token each of 1 and 8 sequences with 2,048 before it. All variants keep the weights of
queries, keys and values in one matrix, and those of gate and up. Each variant runs in a process of
its own; the processes of a setting take turns, a round each, on an otherwise idle GPU. An output's
error is told against the layer in float64.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SKETCHES = Path(__file__).resolve().parent / "decoder"
FEATURES, INNER, HEADS, KEY_HEADS, DEPTH = 2048, 6144, 16, 8, 128
EPSILON = 1e-6
#: Sequences and new tokens of each setting; tokens that a sequence has, the new ones included.
SETTINGS = {
    "prefill-512": (1, 512, 512),
    "prefill-2048": (1, 2048, 2048),
    "decode-1": (1, 1, 2048),
    "decode-8": (8, 1, 2048),
}
#: Tile sizes of sketches for single rows on a target whose cost model does not choose yet: a warp
#: has a row, and four times 16 bytes a lane of it on the way.
CHOSEN = {"cuda_c": {"TN": 4, "TK": 2048}}
VARIANTS = ("eager", "compile", "max-autotune", "triton_cuda", "cuda_c")
ROUNDS, CALLS, WARM_UP = 12, 50, 20


def sketches_of(setting: str) -> dict[str, dict[str, int]]:
    """The sketches that a setting's layer uses, with the sizes that they are lowered for."""
    batch, tokens, length = SETTINGS[setting]
    if tokens > 1:
        return {"swiglu": {"M": batch * tokens, "K": FEATURES, "N": INNER}}
    group, form = HEADS // KEY_HEADS, form_of(batch)
    rows = {"M": batch, "K": FEATURES}
    heads = {"H": HEADS + 2 * KEY_HEADS, "HK": KEY_HEADS, "N": length, "HALF": DEPTH // 2}
    return {
        f"qkv_rope{form}": rows | heads,
        "decode_attention": {"B": batch, "HK": KEY_HEADS, "GROUP": group, "N": length, "D": DEPTH},
        f"add_linear{form}": {"M": batch, "K": INNER, "N": FEATURES},
        f"gate_up{form}": rows | {"N": INNER},
    }


def form_of(batch: int) -> str:
    """The end of the names of the sketches of products for so many rows: those for single rows have
    lanes along the rows of the weights, the others use matrix units."""
    return "_row" if batch == 1 else ""


def build(folder: Path) -> int:
    """Lower all sketches for all settings and both targets into FOLDER/SETTING/TARGET; returns how
    many of them could not be lowered."""
    failed = 0
    for setting in SETTINGS:
        for name, sizes in sketches_of(setting).items():
            for target in VARIANTS[3:]:
                told = ",".join(f"{symbol}={size}" for symbol, size in sizes.items())
                command = [
                    sys.executable,
                    "-m",
                    "sketchc",
                    "lower",
                    str(SKETCHES / f"{name}.sketch"),
                ]
                command += ["--target", target, "--symbols", told]
                command += ["--module", str(folder / setting / target)]
                if name.endswith("_row"):
                    for constant, value in CHOSEN.get(target, {}).items():
                        command += ["--set", f"{constant}={value}"]
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, env=os.environ
                )
                failed += done.returncode != 0
                print(setting, target, name, "built" if done.returncode == 0 else done.stderr)
    return failed


def loaded(folder: Path, name: str) -> Callable[..., Any]:
    """The function of a drop-in."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found: Callable[..., Any] = getattr(importlib.import_module(f"{name}_dropin"), name)
    return found


# ---------------------------------------------------------------- one variant, in its process


def by_kernels(
    layer: Any, kernels: dict[str, Callable[..., Any]], setting: str, given: Sequence[Any]
) -> Any:
    """A call of the `layer` for one new token of each sequence, in five calls of `kernels`."""
    batch, _, length = SETTINGS[setting]
    x, cos, sin, keys, values = given
    rows, half, group = x.view(batch, FEATURES), DEPTH // 2, HEADS // KEY_HEADS
    qkv_rope, add_linear, gate_up = (
        kernels[f"{name}{form_of(batch)}"] for name in ("qkv_rope", "add_linear", "gate_up")
    )
    angles = (cos.expand(batch, half), sin.expand(batch, half))
    caches = tuple(each.view(batch, KEY_HEADS, length, 2, half) for each in (keys, values))
    weight = layer.qkv.view(-1, 2, half, FEATURES)
    told = {"place": length - 1, "eps": EPSILON}
    *_, q = qkv_rope(rows, layer.first, weight, *angles, *caches, **told)
    q = q.view(batch, KEY_HEADS, group, DEPTH)
    y = kernels["decode_attention"](q, keys, values).view(batch, HEADS * DEPTH)
    rows = add_linear(y, layer.out, rows)
    y = gate_up(rows, layer.second, layer.gate_up, eps=EPSILON)
    return add_linear(y, layer.down, rows).view(batch, 1, FEATURES)


def layer(setting: str, kernels: dict[str, Callable[..., Any]]) -> Any:
    """The layer as a module of torch: of torch's operations where `kernels` is empty."""
    import torch
    from torch import nn
    from torch.nn import functional

    batch, tokens, length = SETTINGS[setting]

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            heads = HEADS + 2 * KEY_HEADS
            self.first = nn.Parameter(1 + 0.1 * torch.randn(FEATURES))
            self.second = nn.Parameter(1 + 0.1 * torch.randn(FEATURES))
            self.qkv = nn.Parameter(torch.randn(heads * DEPTH, FEATURES) / FEATURES**0.5)
            self.out = nn.Parameter(torch.randn(FEATURES, HEADS * DEPTH) / FEATURES**0.5)
            self.gate_up = nn.Parameter(torch.randn(2 * INNER, FEATURES) / FEATURES**0.5)
            self.down = nn.Parameter(torch.randn(FEATURES, INNER) / INNER**0.5)

        @staticmethod
        def norm(x: Any, gain: Any) -> Any:
            wide = x.float() if x.dtype == torch.bfloat16 else x
            wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
            return wide.to(x.dtype) * gain

        @staticmethod
        def rotated(x: Any, cos: Any, sin: Any) -> Any:
            left, right = x.chunk(2, -1)
            turned = torch.cat((left * cos - right * sin, right * cos + left * sin), -1)
            return turned.to(x.dtype)

        def attended(self, x: Any, cos: Any, sin: Any, keys: Any, values: Any) -> Any:
            every = functional.linear(self.norm(x, self.first), self.qkv)
            every = every.view(batch, tokens, -1, DEPTH).transpose(1, 2)
            q, k, v = every.split((HEADS, KEY_HEADS, KEY_HEADS), 1)
            q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
            if tokens == 1:
                keys[:, :, length - 1 :] = k
                values[:, :, length - 1 :] = v
                k, v = keys, values
            y = functional.scaled_dot_product_attention(
                q, k, v, is_causal=tokens > 1, enable_gqa=True
            )
            return y.transpose(1, 2).reshape(batch, tokens, -1)

        def forward(self, x: Any, cos: Any, sin: Any, keys: Any, values: Any) -> Any:
            if kernels and tokens == 1:
                return by_kernels(self, kernels, setting, (x, cos, sin, keys, values))
            x = x + functional.linear(self.attended(x, cos, sin, keys, values), self.out)
            y = self.norm(x, self.second)
            if kernels:
                y = kernels["swiglu"](y.view(-1, FEATURES), self.gate_up).view(batch, tokens, -1)
            else:
                gate, up = functional.linear(y, self.gate_up).chunk(2, -1)
                y = functional.silu(gate) * up
            return x + functional.linear(y, self.down)

    return Layer()


def given(setting: str) -> list[Any]:
    """The arguments of a call: hidden states, angles, and caches (empty ones for prefill)."""
    import torch

    batch, tokens, length = SETTINGS[setting]
    exponents = torch.arange(0, DEPTH, 2, dtype=torch.float64) / DEPTH
    places = torch.arange(length - tokens, length, dtype=torch.float64)
    angles = places[:, None] * 1e6**-exponents
    cached = length if tokens == 1 else 0
    caches = [torch.randn(batch, KEY_HEADS, cached, DEPTH) for _ in range(2)]
    hidden = torch.randn(batch, tokens, FEATURES)
    found = [hidden.bfloat16(), angles.cos().float(), angles.sin().float()]
    return [each.cuda() for each in (*found, *(cache.bfloat16() for cache in caches))]


def measured(call: Callable[[], Any]) -> float:
    """Microseconds of one of `CALLS` calls that follow each other, the host's time included."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS * 1e6


def serve(folder: Path, setting: str, variant: str) -> None:
    """Prepare a variant; then answer each line of the input with a round's two figures."""
    import torch

    torch.manual_seed(1)
    kernels = {}
    if variant in VARIANTS[3:]:
        for name in sketches_of(setting):
            kernels[name] = loaded(folder / setting / variant, name)
    plain = layer(setting, {})
    state = plain.state_dict()
    arguments = given(setting)
    exact = plain.bfloat16().double().cuda()(*(each.double() for each in arguments))
    model = layer(setting, kernels)
    model.load_state_dict(state)
    model = model.bfloat16().cuda()
    mode = {"mode": "max-autotune-no-cudagraphs"} if variant == "max-autotune" else {}
    with torch.no_grad():
        call = model if variant == "eager" else torch.compile(model, dynamic=False, **mode)
        error = float((call(*arguments) - exact).norm() / exact.norm())
        for _ in range(WARM_UP):
            call(*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = call(*arguments)
        output.zero_()
        graph.replay()
        again = float((output - exact).norm() / exact.norm())
        print(json.dumps({"error": error, "error_of_graph": again}), flush=True)
        for _ in sys.stdin:
            samples = [measured(lambda: call(*arguments)), measured(graph.replay)]
            print(json.dumps(samples), flush=True)


# ---------------------------------------------------------------- all variants


def asked(process: subprocess.Popen[str], question: str) -> Any:
    """A process's answer to a line, or to nothing, of JSON; other lines are passed over."""
    assert process.stdin is not None
    assert process.stdout is not None
    if question:
        with suppress(BrokenPipeError):
            process.stdin.write(question)
            process.stdin.flush()
    for line in process.stdout:
        if line.startswith(("{", "[")):
            return json.loads(line)
    return None


def compared(folder: Path, setting: str) -> dict[str, dict[str, Any]]:
    """All variants of a setting, in turn."""
    processes = {}
    for variant in VARIANTS:
        command = [sys.executable, __file__, "serve", str(folder), setting, variant]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes[variant] = subprocess.Popen(command, env=os.environ, **pipes)  # type: ignore[call-overload]
    found: dict[str, dict[str, Any]] = {}
    for variant, process in processes.items():
        told = asked(process, "")
        if told is None:
            print(setting, variant, "failed", flush=True)
            continue
        found[variant] = {**told, "calls": [], "graphs": []}
    for _ in range(ROUNDS):
        for variant, samples in list(found.items()):
            answer = asked(processes[variant], "round\n")
            if answer is None:
                print(setting, variant, "ended early", flush=True)
                del found[variant]
                continue
            samples["calls"].append(answer[0])
            samples["graphs"].append(answer[1])
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
    return found


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Medians of all settings and variants, as Markdown."""
    lines = ["| setting | variant | error | call | of compile | of max-autotune | graph |"]
    lines[0] += " of compile | of max-autotune |"
    lines.append("|---" * 9 + "|")
    for setting, variants in found.items():
        for variant, samples in variants.items():
            cells = [setting, variant, f"{samples['error']:.1e}"]
            for key in ("calls", "graphs"):
                cells.append(f"{statistics.median(samples[key]):.1f} us")
                for other in ("compile", "max-autotune"):
                    if other not in variants:
                        cells.append("–")
                        continue
                    pairs = zip(variants[other][key], samples[key], strict=True)
                    cells.append(f"{statistics.median(a / b for a, b in pairs):.2f}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; returns how much of it failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "run", "show", "serve"))
    parser.add_argument("place", type=Path)
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    given_ = parser.parse_args(arguments)
    match given_.what:
        case "build":
            return build(given_.place)
        case "serve":
            serve(given_.place, *given_.rest)
        case "show":
            print(table(json.loads(given_.place.read_text("utf-8"))))
        case "run":
            found = {}
            for setting in given_.only:
                found[setting] = compared(given_.place, setting)
                if given_.json:
                    given_.json.write_text(json.dumps(found), "utf-8")
            print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
