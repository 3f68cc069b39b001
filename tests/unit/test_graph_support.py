"""CUDA graphs of a drop-in's calls: which calls are captured and replayed, with stand-ins for
torch's graphs, streams and tensors."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch")
support = importlib.import_module("sketchc.runtime.dropin.graph_support")

#: What lies at each address.
Memory = dict[int, float]


@attrs.frozen(eq=False)
class Tensor:
    """One number at an address, in place of a tensor on a GPU."""

    address: int
    contiguous: bool = True
    shape: tuple[int, ...] = (1,)
    is_cuda: bool = True
    dtype: str = "f32"
    device: str = "cuda:0"

    def data_ptr(self) -> int:
        """The address."""
        return self.address

    def is_contiguous(self) -> bool:
        """Whether it is dense."""
        return self.contiguous


class Gpu:
    """A stream that executes at once, or has a graph take what it would execute."""

    def __init__(self) -> None:
        self.memory: Memory = {}
        self.capturing: list[Callable[[], None]] | None = None
        self.stream = 7
        self.captures = self.replays = self.runs = self.waits = 0

    def execute(self, work: Callable[[], None]) -> None:
        """What a launch does."""
        if self.capturing is not None:
            self.capturing.append(work)
        else:
            work()

    def run(self, x: Tensor, *, factor: float, out: Tensor | None = None) -> Tensor:
        """A kernel's function: out = x * factor, by addresses, as a launch is given them."""
        self.runs += 1
        spot = out or Tensor(1000 + self.runs)
        source, target = x.address, spot.address

        def work() -> None:
            self.memory[target] = self.memory[source] * factor

        self.execute(work)
        return spot


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Stands in for torch's own."""
    own = Gpu()

    class Graph:
        def __init__(self) -> None:
            self.work: list[Callable[[], None]] = []

        def replay(self) -> None:
            own.replays += 1
            for each in self.work:
                own.execute(each)

    @contextlib.contextmanager
    def graph(taking: Graph, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        own.captures += 1
        own.capturing = taking.work
        yield
        own.capturing = None

    class Stream:
        cuda_stream = property(lambda _: own.stream)

    def synchronize() -> None:
        own.waits += 1

    cuda: dict[str, Any] = {
        "CUDAGraph": Graph,
        "graph": graph,
        "current_stream": lambda device: Stream(),
        "is_current_stream_capturing": lambda: own.capturing is not None,
        "device": lambda device: contextlib.nullcontext(),
        "synchronize": synchronize,
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return own


def test_calls_that_repeat_are_replayed_and_compute_the_same(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    for turn in range(6):
        for address, factor in ((1, 2.0), (1, 3.0), (2, 2.0)):
            gpu.memory[address] = value = float(turn * 10 + address)
            out = Tensor(5)
            assert graphs(Tensor(address), factor=factor, out=out) is out
            assert gpu.memory[5] == value * factor
    assert (gpu.captures, gpu.replays, gpu.runs) == (3, 15, 6)


def test_signs_of_zero_and_streams_have_graphs_of_their_own(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    gpu.memory[1] = 1.0
    for stream in (7, 8):
        gpu.stream = stream
        for factor in (0.0, -0.0, float("nan")):
            for _ in range(3):
                graphs(Tensor(1), factor=factor, out=Tensor(5))
                assert str(gpu.memory[5]) == str(factor)
    assert gpu.captures == 6


@pytest.mark.parametrize(
    ("x", "out"),
    [
        (Tensor(1), None),
        (Tensor(1, contiguous=False), Tensor(5)),
        (Tensor(1), Tensor(5, contiguous=False)),
        (Tensor(1, is_cuda=False), Tensor(5, is_cuda=False)),
    ],
)
def test_other_calls_are_never_captured(gpu: Gpu, x: Tensor, out: Tensor | None) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    gpu.memory[1] = 4.0
    for _ in range(4):
        found = graphs(x, factor=2.0, out=out)
        assert gpu.memory[found.address] == 8.0
    assert (gpu.captures, gpu.runs) == (0, 4)


def test_a_capture_by_others_takes_the_launches_themselves(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    gpu.memory[1] = 4.0
    for _ in range(3):
        graphs(Tensor(1), factor=2.0, out=Tensor(5))
    taken: list[Callable[[], None]] = []
    gpu.capturing = taken
    graphs(Tensor(1), factor=2.0, out=Tensor(5))
    gpu.capturing = None
    assert len(taken) == 1
    assert gpu.captures == 1


def test_a_call_that_fails_leaves_no_graph(gpu: Gpu) -> None:
    def refusing(x: Tensor, *, out: Tensor) -> Tensor:
        raise ValueError("does not fit")

    graphs = support.Graphs(refusing, makes_results=True)
    for _ in range(3):
        with pytest.raises(ValueError, match="does not fit"):
            graphs(Tensor(1), out=Tensor(5))
    assert not graphs.known


def test_graphs_do_not_grow_without_end(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    for address in range(1, 3 * support.MOST_GRAPHS):
        gpu.memory[address] = float(address)
        for _ in range(3):
            graphs(Tensor(address), factor=2.0, out=Tensor(0))
            assert gpu.memory[0] == 2.0 * address
    assert len(graphs.known) <= support.MOST_GRAPHS
    assert gpu.waits == 2  # what is forgotten may still run


def test_threads_capture_one_after_the_other(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    gpu.memory.update({address: float(address) for address in range(1, 5)})
    failed: list[BaseException] = []

    def work(address: int) -> None:
        try:
            for _ in range(200):
                graphs(Tensor(address), factor=2.0, out=Tensor(100 + address))
                assert gpu.memory[100 + address] == 2.0 * address
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(address,)) for address in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert gpu.captures == 4
