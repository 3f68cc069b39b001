"""Plans of Python wrappers: a call that finds one launches what a call that makes one launches,
with kernels that were compiled for such arguments, and refuses what each call must refuse."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from triton_cases import example, lower

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

#: Tensors that begin where only their elements' size divides the address.
UNALIGNED = 1

LOOP = """sketch decayed {
    symbols: N;
    params: steps: i64, rate: f32;
    tensors: X[N]: inout f32;
    constexpr: T = 64;
    for step in range(steps):
        @llm_hint("parallel", "grididx")
        for i in range(ceil(N, T)):
            x = alloc([T])
            load(X[i*T:(i+1)*T] -> x)
            mul(x, rate, x)
            add(x, step, x)
            store(x -> X[i*T:(i+1)*T])
}"""


BOUND = """sketch clamped {
    symbols: N;
    params: steps: i64;
    tensors: X[N]: inout f32;
    constexpr: T = 64;
    for step in range(steps):
        factor = max(step * 8, steps - 2)
        @llm_hint("parallel", "grididx")
        for i in range(ceil(N, T)):
            x = alloc([T])
            load(X[i*T:(i+1)*T] -> x)
            mul(x, factor, x)
            store(x -> X[i*T:(i+1)*T])
}"""

#: Tiles as wide as D in a product, whose depth must be 16 at least, and in a reduction.
WIDTHS = """sketch widths {
    symbols: N, D <= 64;
    tensors: Q[N, D]: in f32; K[N, D]: in f32; S[N, N]: out f32; Z[N, D]: out f32;
    constexpr: T = 32;
    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, T)):
            q = alloc([T, D])
            k = alloc([T, D])
            s = alloc([T, T], f32)
            load(Q[i*T:(i+1)*T, 0:D] -> q)
            load(K[j*T:(j+1)*T, 0:D] -> k)
            matmul(q, k, s, trans_b=True)
            store(s -> S[i*T:(i+1)*T, j*T:(j+1)*T])
    @llm_hint("parallel", "grididx")
    for i in range(N):
        x = alloc([1, D])
        t = alloc([1, 1], f32)
        load(Q[i:i+1, 0:D] -> x)
        reduce_max(x, t, axis=1)
        sub(x, t, x)
        store(x -> Z[i:i+1, 0:D])
}"""


@attrs.frozen
class Launch:
    """What a launch was given: `tensors` by the argument whose memory it is, or "new"."""

    kernel: str
    programs: int
    tensors: tuple[str, ...]
    numbers: tuple[Any, ...]


def specialised(value: Any) -> object:
    """What Triton compiles a kernel apart for, of an argument."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr() % 16 == 0, value.dtype
    if isinstance(value, bool):
        return bool
    if isinstance(value, int):
        return value == 1, value % 16 == 0, -(2**31) <= value < 2**31
    return type(value)


class Compiled:
    """In place of a kernel that Triton has compiled: it takes arguments of its kind alone."""

    launch_metadata = None

    def __init__(self, owner: Kernel, kinds: Sequence[object], types: Sequence[Any]) -> None:
        self.owner, self.kinds, self.types = owner, kinds, types

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        def launch(*given: Any) -> None:
            kinds = []
            for value, kind in zip(given, self.types, strict=True):
                kinds.append((value % 16 == 0, kind) if kind is not None else specialised(value))
            assert kinds == self.kinds, self.owner.name
            self.owner.again += 1
            self.owner.note(grid[0], given)

        return launch


class Kernel:
    """In place of a jitted function: it notes its launches in place of making them."""

    def __init__(self, real: Any, launches: list[Launch], places: dict[int, str]) -> None:
        self.name, self.arg_names = real.fn.__name__, real.arg_names
        self.launches, self.places, self.again, self.slow = launches, places, 0, 0

    def note(self, programs: int, given: Sequence[Any]) -> None:
        """Note a launch with these values of all parameters, tensors by their addresses."""
        count = sum(name.endswith("_ptr") for name in self.arg_names)
        tensors = tuple(self.places.get(pointer, "new") for pointer in given[:count])
        self.launches.append(Launch(self.name, programs, tensors, tuple(given[count:])))

    def __getitem__(self, grid: tuple[int]) -> Callable[..., Compiled]:
        def launch(*given: Any, **options: Any) -> Compiled:
            whole = [*given, *(options[name] for name in self.arg_names[len(given) :])]
            types = [value.dtype if isinstance(value, torch.Tensor) else None for value in whole]
            plain = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in whole]
            self.slow += 1
            self.note(grid[0], plain)
            return Compiled(self, [specialised(value) for value in whole], types)

        return launch


@attrs.define
class Loaded:
    """A module of a sketch with kernels that note their launches."""

    module: ModuleType
    function: Callable[..., Any]
    kernels: list[Kernel]
    launches: list[Launch]
    places: dict[int, str]

    def called(self, *given: Any, out: Any = None, **params: Any) -> tuple[str, list[Launch]]:
        """What a call refuses, or "", and what it launches."""
        self.places.clear()
        self.places.update({t.data_ptr(): f"argument {n}" for n, t in enumerate(given)})
        self.places.update({} if out is None else {out.data_ptr(): "out"})
        del self.launches[:]
        named = params if out is None else {**params, "out": out}
        try:
            self.function(*given, **named)
        except ValueError as error:
            return f"{type(error).__name__}: {error}", list(self.launches)
        return "", list(self.launches)


def load(text: str, folder: Path, name: str) -> Loaded:
    """The module of a sketch, imported anew."""
    from triton.runtime.jit import JITFunction

    kernel = lower(text)[1]
    path = folder / f"{name}.py"
    path.write_text(kernel.source, "utf-8")
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    launches: list[Launch] = []
    places: dict[int, str] = {}
    kernels = []
    for own, value in list(vars(module).items()):
        if isinstance(value, JITFunction):
            kernels.append(Kernel(value, launches, places))
            setattr(module, own, kernels[-1])
    return Loaded(module, getattr(module, kernel.entry), kernels, launches, places)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The index of the current device; that of tensors on the CPU is None."""
    current: list[Any] = [None]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    return current


def placed(shape: tuple[int, ...], offset: int = 0, kind: Any = None) -> Any:
    """A tensor that begins `offset` elements behind a multiple of 64 bytes."""
    kind = kind or torch.float32
    count = 1
    for extent in shape:
        count *= extent
    memory = torch.zeros(count + offset + 64, dtype=kind)
    first = -(memory.data_ptr() // memory.element_size()) % (64 // memory.element_size())
    return memory[first + offset : first + offset + count].view(shape)


def turned(shape: tuple[int, ...]) -> Any:
    """A tensor whose axes lie in memory in the opposite order."""
    return placed(shape[::-1]).permute(*reversed(range(len(shape))))


#: Text, shapes of the inputs for a size, params to draw from.
SKETCHES: dict[str, tuple[str, Callable[[int], list[tuple[int, ...]]], list[dict[str, Any]]]] = {
    "rms": (example("rms"), lambda n: [(2, 3, n, 5)], [{"eps": 1e-5}, {"eps": 0.5}]),
    "matmul": (example("matmul"), lambda n: [(n, 7), (7, n)], [{}]),
    "two_phases": (example("cumsum_two_phase"), lambda n: [(3, n)], [{}]),
    "dropout": (
        example("dropout"),
        lambda n: [(n, 3)],
        [{"p": p, "seed": seed} for p in (0.25, 0.5) for seed in (0, 1, 16, 17, 2**40)],
    ),
    "bound": (
        BOUND,
        lambda n: [(n,)],
        [{"steps": steps} for steps in (1, 3, 5, 18)],
    ),
    "loop": (
        LOOP,
        lambda n: [(n,)],
        [{"steps": s, "rate": r} for s in (0, 1, 3) for r in (0.0, -0.0, 2.0)],
    ),
}


@pytest.mark.parametrize("name", SKETCHES)
def test_a_call_that_finds_a_plan_launches_what_one_without_launches(
    name: str, tmp_path: Path, device: list[Any]
) -> None:
    text, shapes_of, params = SKETCHES[name]
    kept = load(text, tmp_path, f"kept_{name}")
    again = 0
    for _ in range(2):
        for size in (1, 15, 16, 17, 64, 97, 0):
            for each in params:
                shapes = shapes_of(size)
                for way, given in {
                    "dense": [placed(shape) for shape in shapes],
                    "unaligned": [placed(shape, UNALIGNED) for shape in shapes],
                    "one unaligned": [
                        placed(shape, UNALIGNED * (place == 0))
                        for place, shape in enumerate(shapes)
                    ],
                    "turned": [turned(shape) for shape in shapes],
                    "other device": [placed(shape) for shape in shapes],
                }.items():
                    device[0] = 1 if way == "other device" else None
                    before = sum(kernel.again for kernel in kept.kernels)
                    own = load(text, tmp_path, f"own_{name}")
                    assert kept.called(*given, **each) == own.called(*given, **each), (way, size)
                    made = sum(kernel.again for kernel in kept.kernels) - before
                    assert not made or way in ("dense", "turned", "one unaligned"), way
                    again += made
    assert again


def test_later_calls_do_not_go_through_triton(tmp_path: Path) -> None:
    loaded = load(example("rms"), tmp_path, "usual")
    for _ in range(5):
        assert loaded.called(placed((2, 3, 4, 5)), eps=1e-5)[0] == ""
        assert loaded.called(placed((2, 3, 4, 5)), eps=0.25)[0] == ""
    (kernel,) = loaded.kernels
    assert (kernel.slow, kernel.again) == (1, 9)


def test_what_must_be_refused_is_refused_behind_a_plan(tmp_path: Path) -> None:
    loaded = load(example("rms"), tmp_path, "refusing")
    X, Y = placed((2, 3, 4, 5)), placed((2, 3, 4, 5))
    for _ in range(2):
        assert loaded.called(X, eps=1.0)[0] == ""
        assert loaded.called(X, eps=1.0, out=Y)[0] == ""
        for given, out, told in (
            (X, X, "overlaps"),
            (X, placed((2, 3, 4, 6)), "shape"),
            (X, Y.double(), "type"),
            (X, Y.to("meta"), "device|on meta"),
            (X.double(), None, "type"),
            (X[0], None, "axes"),
            (placed((1, 1, 1, 4097)), None, "D2 <= 4096"),
        ):
            refusal, launches = loaded.called(given, eps=1.0, out=out)
            assert refusal.startswith("LaunchError"), told
            assert any(word in refusal for word in told.split("|")), refusal
            assert not launches


def test_plans_of_an_optional_tensor_are_apart(tmp_path: Path) -> None:
    text = """sketch biased {
    symbols: N;
    tensors: X[N]: in f32; BIAS[N]: in f32?; Y[N]: out f32;
    constexpr: T = 64;
    @llm_hint("parallel", "grididx")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if present(BIAS):
            b = alloc([T])
            load(BIAS[i*T:(i+1)*T] -> b)
            add(x, b, x)
        store(x -> Y[i*T:(i+1)*T])
}"""
    loaded = load(text, tmp_path, "biased")
    X, bias = placed((70,)), placed((70,))
    for _ in range(3):
        told = []
        for given in ([X], [X, bias]):
            refusal, launches = loaded.called(*given)
            assert refusal == ""
            told.append(launches[0].numbers)
        assert told[0] != told[1]
    assert loaded.called(X, placed((71,)))[0].startswith("LaunchError")


def test_threads_call_a_module_at_a_time(tmp_path: Path) -> None:
    loaded = load(example("matmul"), tmp_path, "threads")
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(200):
                size = 1 + (turn * 7 + seed) % 40
                assert loaded.function(placed((size, 7)), placed((7, size))).shape == (size, size)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    for launch in loaded.launches:
        M, N, K = launch.numbers[:3]
        assert (M, K) == (N, 7)


def test_plans_do_not_grow_without_end(tmp_path: Path) -> None:
    loaded = load(example("relu"), tmp_path, "many")
    for size in range(1, 1200):
        assert loaded.called(torch.empty(1, size))[0] == ""
    assert 0 < len(loaded.module.PLANS) <= 1024


def test_a_width_is_enough_for_each_launch_that_has_it(tmp_path: Path) -> None:
    made = load(WIDTHS, tmp_path, "widths")
    for _ in range(3):
        message, launches = made.called(torch.zeros(7, 5), torch.zeros(7, 5))
        assert message == ""
        names = {kernel.name: kernel.arg_names for kernel in made.kernels}
        product = launches[0]
        numbers = [name for name in names[product.kernel] if not name.endswith("_ptr")]
        assert dict(zip(numbers, product.numbers, strict=True))["D_BLOCK"] >= 16
