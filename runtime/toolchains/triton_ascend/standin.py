"""A stand-in for the module `triton`, so that a generated wrapper runs without Triton.

`triton.jit` returns a `Launcher`: `kernel[grid](...)` binds the arguments as Triton's own launcher
does and passes a `Launch` to a function. Everything else that a wrapper uses (`cdiv`,
`next_power_of_2`, `tl.constexpr` annotations, `tl.float32` constants) is here by value or by name.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

#: Compile options that a launch may carry; the front end takes or ignores them.
OPTIONS = frozenset(
    {"num_warps", "num_stages", "num_ctas", "maxnreg", "multibuffer", "debug", "stream"}
)
#: The NPU's driver refuses larger launch grids.
LARGEST_GRID = 65535


class LaunchError(Exception):
    """A launch that the real launcher would refuse."""


@attrs.frozen
class Launch:
    """One launch: the kernel's name, the grid, arguments by name in the kernel's order (constexprs
    in `constants`), compile options, and in `general` the names of arguments whose values are not
    specialised."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    general: frozenset[str] = frozenset()


class Named:
    """`tl.<name>`: an annotation, a dtype or a function that only kernels call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"tl.{self.name}"

    def __getattr__(self, attribute: str) -> Named:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Named(f"{self.name}.{attribute}")

    def __call__(self, value: Any = None, *_: Any, **__: Any) -> Any:
        """`tl.constexpr(value)` returns `value`; any other call raises `LaunchError`."""
        if self.name == "constexpr":  # `X = tl.constexpr(3)` at module level
            return value
        raise LaunchError(f"tl.{self.name} is called outside of a kernel")


class Launcher:
    """The object that `@triton.jit` returns for a function."""

    def __init__(
        self,
        function: Callable[..., Any],
        launch: Callable[[Launch], None],
        general: Collection[str | int] = (),
    ) -> None:
        self.function = function
        self.launch = launch
        self.__name__ = function.__name__
        self.signature = inspect.signature(function)
        order = list(self.signature.parameters)
        self.general = frozenset(order[one] if isinstance(one, int) else one for one in general)
        self.constants = {
            name
            for name, parameter in self.signature.parameters.items()
            if "constexpr" in str(parameter.annotation)
        }

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def start(*arguments: Any, **keywords: Any) -> None:
            self.start(grid, arguments, keywords)

        return start

    def __call__(self, *_: Any, **__: Any) -> None:
        """A call without a grid: raises `LaunchError`."""
        raise LaunchError(f"the kernel {self.__name__} is called without a launch grid")

    def start(self, grid: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Bind the arguments and pass the `Launch` to `self.launch`. Raises `LaunchError`."""
        names = self.signature.parameters
        options = {k: v for k, v in keywords.items() if k in OPTIONS and k not in names}
        given = {k: v for k, v in keywords.items() if k not in options}
        try:
            bound = self.signature.bind(*arguments, **given)
        except TypeError as error:
            raise LaunchError(f"launch of {self.__name__}: {error}") from error
        bound.apply_defaults()
        values = dict(bound.arguments)
        places = grid(values) if callable(grid) else grid
        places = (places,) if isinstance(places, int) else tuple(places)
        extents = (*places, 1, 1, 1)[:3]
        if any(type(extent) is not int or extent < 0 for extent in extents) or len(places) > 3:
            message = f"launch of {self.__name__}: the grid {places} is not up to three integers"
            raise LaunchError(message)
        if extents[0] * extents[1] * extents[2] > LARGEST_GRID:
            message = (
                f"launch of {self.__name__}: the grid {places} has over {LARGEST_GRID} programs"
            )
            raise LaunchError(message)
        self.launch(
            Launch(
                self.__name__,
                extents,
                {k: v for k, v in values.items() if k not in self.constants},
                {k: v for k, v in values.items() if k in self.constants},
                options,
                self.general,
            )
        )


class _Language(types.ModuleType):
    """`triton.language`, or a module below it: every attribute is a `Named`."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Named:
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(name)


def install(launch: Callable[[Launch], None]) -> None:
    """Make the stand-in this process's module `triton`; `launch` is called with each launch."""
    triton = types.ModuleType("triton")
    triton.__path__ = []

    def jit(function: Any = None, **options: Any) -> Any:
        """`@triton.jit`, with or without arguments."""
        if function is None:
            return lambda given: jit(given, **options)
        return Launcher(function, launch, options.get("do_not_specialize") or ())

    def refuse(*_: Any, **__: Any) -> Any:
        message = "tuning belongs to the wrapper: triton.autotune and heuristics are not supported"
        raise LaunchError(message)

    contents: dict[str, Any] = {
        "jit": jit,
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": lambda n: 1 << max(0, int(n) - 1).bit_length(),
        "autotune": refuse,
        "heuristics": refuse,
        "constexpr": Named("constexpr"),
        "__version__": "3.2.0",
    }
    for name, value in contents.items():
        setattr(triton, name, value)
    sys.modules["triton"] = triton
    for name in ("language", "language.math", "language.extra", "language.extra.libdevice"):
        module = _Language(f"triton.{name}")
        sys.modules[f"triton.{name}"] = module
        parent, _, last = f"triton.{name}".rpartition(".")
        setattr(sys.modules[parent], last, module)
