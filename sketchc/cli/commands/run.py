"""`sketchc run`: execute a sketch in the reference interpreter."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import numpy as np

from sketchc.api import sketches
from sketchc.base.diagnostics import refuse
from sketchc.base.types import Scalar
from sketchc.cli import options
from sketchc.ir.show import assignments

if TYPE_CHECKING:
    from sketchc.interpreter.tiles import Array
    from sketchc.ir import nodes as ir

#: How many leading values of an output are shown.
SHOWN_VALUES = 4


@click.command()
@click.argument("file")
@options.symbols_option("Sizes; those that the inputs' shapes give need not be said.")
@options.set_option("Bind a constexpr or a param.")
@click.option("--inputs", metavar="X.npz", help="Input arrays by tensor name; default: random.")
@click.option("--out", metavar="Y.npz", help="Write the outputs there, by tensor name.")
@options.sketch_option
@click.option("--seed", type=int, default=0, show_default=True, help="For random inputs.")
@options.verify_ir_option
def run(
    file: str,
    symbols: tuple[str, ...],
    settings: tuple[str, ...],
    inputs: str | None,
    out: str | None,
    name: str | None,
    seed: int,
) -> int:
    """Run a sketch in the reference interpreter and show its outputs.

    bfloat16 arrays in .npz files are read and written as raw 2-byte values.

    \b
    Examples:
      sketchc run examples/softmax.sketch --symbols M=4,N=300
      sketchc run examples/rms.sketch --inputs x.npz --set eps=1e-5 --out y.npz
    """
    sizes = options.parse_sizes(symbols)
    constants = options.parse_assignments(settings, "--set")
    if seed < 0:
        refuse(f"--seed takes 0 or more, not {seed}")
    from sketchc.checker.api import check_sketch, identifier
    from sketchc.interpreter.api import Options, interpret

    source, tree = sketches.load_sketch(file, name)
    sketches.check_bindable(tree, constants)
    checked, found = check_sketch(tree, constants)
    options.show_diagnostics(source, found)
    if checked is None:
        return 1
    sketch = checked.sketch
    declared = {param.name for param in sketch.params}
    params = {name: value for name, value in constants.items() if name in declared}
    chosen = Options(shuffle=seed)
    # Names may be given as the sketch writes them: a reserved word has another one from here on.
    sizes = {identifier(key): size for key, size in sizes.items()}
    with sketches.pointing_into(source):
        if inputs is None:
            arrays = _random(sketch, sizes, params, chosen.memory_limit, seed)
        else:
            arrays = {identifier(key): array for key, array in read_arrays(inputs).items()}
        result = interpret(sketch, arrays, sizes, params, chosen)
    origin = f"random signed inputs of seed {seed}" if inputs is None else f"inputs of {inputs}"
    click.echo(f"{sketch.name}: {describe(sketch, result.symbols)} ({origin})")
    for key, array in result.outputs.items():
        click.echo(summarise(key, array, sketch.tensor(key).dtype.value))
    if out is not None:
        write_arrays(out, result.outputs)
        click.echo(f"wrote {', '.join(result.outputs)} to {out}")
    return 0


def _random(
    sketch: ir.Sketch,
    sizes: Mapping[str, int],
    params: Mapping[str, Scalar],
    limit: int,
    seed: int,
) -> dict[str, Array]:

    from sketchc.interpreter.inputs import random_inputs
    from sketchc.interpreter.launch import bind_symbols, bind_values, tensor_shapes

    values = bind_values(sketch, bind_symbols(sketch, {}, sizes), params)
    shapes = tensor_shapes(sketch, values, limit)
    return random_inputs(sketch, shapes, np.random.default_rng(seed))


def read_arrays(path: str) -> dict[str, Array]:
    """The arrays of an .npz file by name. Raises `UsageError` for a file that is not one."""

    damaged = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)
    try:
        with open(path, "rb") as file:
            head = file.read(6)
        if head == b"\x93NUMPY":
            refuse(f"{path} holds one array; --inputs takes an .npz file with one array per tensor")
        if not zipfile.is_zipfile(path):
            refuse(f"{path} is not an .npz file; write one with numpy.savez({path!r}, NAME=array)")
        with np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        refuse(f"cannot read {path}: {error.strerror}", error)
    except (*damaged, NotImplementedError, SyntaxError, struct.error) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        refuse(f"{path} is not a readable .npz file ({reason})", error)


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file to exactly `path`. Raises `UsageError` if it cannot be written."""
    with options.writing(path), open(path, "wb") as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]


def describe(sketch: ir.Sketch, symbols: Mapping[str, int]) -> str:
    """The sizes and constants of a run as text: `M = 300, N = 520, TILE = 64`."""
    values: dict[str, object] = {**symbols}
    values.update({constant.name: constant.value for constant in sketch.constants})
    return assignments(values)


def summarise(name: str, array: Array, dtype: str) -> str:
    """One line on an output: shape, type, minimum, maximum, mean and the first values."""

    head = f"{name}[{', '.join(map(str, array.shape))}] {dtype}"
    if array.size == 0:
        return f"{head}: empty"
    numbers = array.astype(np.float64)
    first = ", ".join(f"{value:.6g}" for value in numbers.reshape(-1)[:SHOWN_VALUES])
    more = ", ..." if array.size > SHOWN_VALUES else ""
    return (
        f"{head}: min {numbers.min():.6g}, max {numbers.max():.6g}, mean {numbers.mean():.6g}, "
        f"values {first}{more}"
    )
