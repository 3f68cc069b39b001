"""CUDA graphs of a drop-in's calls: which calls are captured and replayed, with stand-ins for
torch's graphs, streams and tensors."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from sketchc.runtime.dropin import kernel_module

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


class Here(threading.local):
    """What is current in a thread."""

    stream = 7
    device = "cuda:0"
    capturing: list[Callable[[], None]] | None = None


class Gpu:
    """A stream that executes at once, or has a graph take what it would execute."""

    def __init__(self) -> None:
        self.memory: Memory = {}
        self.here = Here()
        #: Whether a thread captures: only one may.
        self.taken = False
        self.captures = self.replays = self.runs = self.waits = 0
        #: Where the next capture fails.
        self.failing: str | None = None

    def execute(self, work: Callable[[], None]) -> None:
        """What a launch does."""
        if self.here.capturing is not None:
            self.here.capturing.append(work)
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
    def graph(taking: Graph, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        """As torch's own, it leaves its stream the current one where it fails."""
        assert capture_error_mode == "thread_local"
        assert stream.device == own.here.device
        own.captures += 1
        before, own.here.stream = own.here.stream, stream.cuda_stream
        if own.failing == "begin":
            raise RuntimeError("cannot begin")
        assert not own.taken
        own.here.capturing, own.taken = taking.work, True
        try:
            yield
            time.sleep(0.002)  # other threads may do what they can
        finally:
            own.here.capturing, own.taken = None, False
        if own.failing == "end":
            raise RuntimeError("cannot end")
        own.here.stream = before

    class Stream:
        def __init__(self, device: str, number: int = 99) -> None:
            self.device, self.cuda_stream = device, number

    @contextlib.contextmanager
    def stream(one: Stream) -> Iterator[None]:
        before, own.here.stream = own.here.stream, one.cuda_stream
        try:
            yield
        finally:
            own.here.stream = before

    @contextlib.contextmanager
    def device(one: str) -> Iterator[None]:
        before, own.here.device = own.here.device, one
        try:
            yield
        finally:
            own.here.device = before

    def synchronize(device: str) -> None:
        own.waits += 1

    cuda: dict[str, Any] = {
        "CUDAGraph": Graph,
        "graph": graph,
        "Stream": Stream,
        "stream": stream,
        "current_stream": lambda device: Stream(device, own.here.stream),
        "is_current_stream_capturing": lambda: own.here.capturing is not None,
        "device": device,
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
        gpu.here.stream = stream
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
    gpu.here.capturing = taken
    graphs(Tensor(1), factor=2.0, out=Tensor(5))
    gpu.here.capturing = None
    assert len(taken) == 1
    assert gpu.captures == 1


def test_a_call_that_fails_leaves_no_graph(gpu: Gpu) -> None:
    def refusing(x: Tensor, *, out: Tensor) -> Tensor:
        raise ValueError("does not fit")

    graphs = support.Graphs(refusing, makes_results=True)
    for _ in range(3):
        with pytest.raises(ValueError, match="does not fit"):
            graphs(Tensor(1), out=Tensor(5))
    assert not graphs.graphs
    assert not graphs.met


@pytest.mark.parametrize("place", ["begin", "end"])
def test_what_cannot_be_captured_runs_as_without_graphs(gpu: Gpu, place: str) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    gpu.failing = place
    for turn in range(5):
        gpu.memory[1] = float(turn)
        graphs(Tensor(1), factor=2.0, out=Tensor(5))
        assert gpu.memory[5] == 2.0 * turn
        assert (gpu.here.stream, gpu.here.device) == (7, "cuda:0")
    assert (gpu.captures, gpu.replays) == (1, 0)


def test_a_capture_is_of_its_tensors_device(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    for device in ("cuda:0", "cuda:1"):
        for turn in range(4):
            gpu.memory[1] = float(turn)
            graphs(Tensor(1, device=device), factor=2.0, out=Tensor(5, device=device))
            assert gpu.memory[5] == 2.0 * turn
    assert (gpu.captures, gpu.replays) == (2, 6)  # `graph` checks the device of its stream


def test_graphs_do_not_grow_without_end(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    count = support.MOST_GRAPHS + 9
    for turn in range(4):
        for address in range(1, count + 1):
            gpu.memory[address] = value = float(address + turn)
            graphs(Tensor(address), factor=2.0, out=Tensor(0))
            assert gpu.memory[0] == 2.0 * value
    assert len(graphs.graphs) == support.MOST_GRAPHS
    assert gpu.captures == count  # those that made room are not captured again
    assert gpu.waits == 9  # what is forgotten may still run


def test_calls_that_do_not_repeat_drop_no_graph(gpu: Gpu) -> None:
    graphs = support.Graphs(gpu.run, makes_results=True)
    gpu.memory[1] = 1.0
    for turn in range(2 * support.MOST_KINDS):
        graphs(Tensor(1), factor=2.0, out=Tensor(5))
        graphs(Tensor(1), factor=2.0, out=Tensor(10 + turn))
    assert (gpu.captures, gpu.waits) == (1, 0)
    assert len(graphs.met) == support.MOST_KINDS


def test_threads_capture_one_after_the_other(gpu: Gpu) -> None:
    text = kernel_module.GRAPH_SUPPORT.read_text("utf-8")
    copies: list[dict[str, Any]] = [{"__name__": "copied"} for _ in range(2)]
    for each in copies:  # as in two drop-ins
        exec(text, each)
    modules = [each["Graphs"](gpu.run, makes_results=True) for each in copies]
    gpu.memory.update({address: float(address) for address in range(1, 5)})
    failed: list[BaseException] = []

    def work(address: int) -> None:
        try:
            for _ in range(200):
                graphs = modules[address % 2]
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
    assert (gpu.captures, gpu.replays) == (4, 4 * 199)  # no capture failed
