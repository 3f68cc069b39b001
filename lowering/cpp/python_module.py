"""The importable drop-in: a nanobind module around a kernel's C entry point.

`NAME_module.NAME(X, ..., eps=...)` takes the `in` and `inout` tensors in call order as NumPy arrays
or torch CPU tensors, and params by keyword; it binds the symbols from the shapes, checks shapes and
types (`ValueError`), allocates the outputs and returns them in call order (one: bare, several: a
tuple), as torch tensors if any input was one. `out=` gives the outputs (one: bare, several: a
tuple) to be written instead. Inputs that are not contiguous are copied, and what is written is
copied back.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import references
from sketchc.launch.conditions import (
    Condition,
    Kind,
    fetch_conditions,
    fetched_conditions,
    launch_conditions,
    launch_steps,
    may_repeat,
    mentioned,
    refusal_text,
    solved_sizes,
)
from sketchc.launch.inputs import SymbolSource, sources_of
from sketchc.lowering.abi import params_to_round, passed
from sketchc.lowering.c_source.abi import actual_extents, scalars
from sketchc.lowering.c_source.expressions import Expressions, broken, identifier
from sketchc.lowering.cpp.library.texts import library_text, read
from sketchc.lowering.precedence import Code


def module_source(sketch: ir.Sketch, entry: str) -> str:
    """The C++ source of `<name>_module`, to be compiled together with the kernel's."""
    return _Module(sketch=sketch, entry=entry).text()


@attrs.define
class _Module(Expressions):
    sketch: ir.Sketch = attrs.field(kw_only=True)
    entry: str = attrs.field(kw_only=True)
    lines: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """The whole file."""
        name = self.sketch.name
        self._run()
        function = "\n".join(self.lines)
        _, includes, arguments = read("python_module.hpp").split("//#\n")
        parts = [
            f"// The Python module of {name}: glue, so compiled without costly optimisation.\n"
            '#pragma GCC optimize("O1")',
            includes.strip("\n"),
            library_text(self.used),
            arguments.strip("\n"),
            self._declaration(),
            function,
            self._registration(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    # ------------------------------------------------------------ parts

    def _given(self) -> list[ir.Tensor]:
        return [t for t in passed(self.sketch) if t.role is not ir.Role.OUT]

    def _made(self) -> list[ir.Tensor]:
        """The outputs, which the module allocates unless they are given."""
        return [t for t in passed(self.sketch) if t.role is ir.Role.OUT]

    def _declaration(self) -> str:
        kinds = [
            "const void *" if tensor.role is ir.Role.IN else "void *"
            for tensor in passed(self.sketch)
        ]
        kinds += [kind for kind, _ in scalars(self.sketch)]
        return f'extern "C" int64_t {self.entry}({", ".join(kinds)});'

    def _run(self) -> None:
        arguments = [f"const nb::object &{t.name}_given" for t in self._given()]
        arguments += [f"const nb::object &{param.name}_given" for param in self.sketch.params]
        arguments += ["const nb::object &out_given"] if self._made() else []
        self.lines += [f"static nb::object run({', '.join(arguments)})", "{"]
        for param in self.sketch.params:
            kind = "double" if param.dtype.is_float else "int64_t"
            taken = "take_number" if param.dtype.is_float else "take_integer"
            taken = "take_bool" if param.dtype is DType.BOOL else taken
            argument = f'{param.name}_given, "{param.name}"'
            self._line(f"{kind} {identifier(param.name)} = {taken}({argument});")
        for tensor in self._given():
            name, rank = tensor.name, len(tensor.extents)
            taken = "take_optional" if tensor.optional else "take"
            self._line(
                f"const argument {name}_argument ="
                f' {taken}({name}_given, "{name}", "{tensor.dtype.numpy_name}", {rank});'
            )
        self._scalars()
        self._checks()
        self._outputs()
        self._call()
        self.lines.append("}")

    def _line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def _scalars(self) -> None:
        asked = {
            name.name
            for condition in launch_conditions(self.sketch)
            for name in references(condition.holds)
            if name.kind is ir.NameKind.PRESENT
        }
        for tensor in self._given():
            if tensor.name in asked:
                given = f"{tensor.name}_given"
                self._line(
                    f"const nb::object *const {identifier(tensor.name)} ="
                    f" {given}.is_none() ? nullptr : &{given};"
                )
        for symbol, sources in sources_of(self.sketch).items():
            self._symbol(symbol, sources)
        for constant in self.sketch.constants:
            kind = "double" if constant.dtype.is_float else "int64_t"
            text = self.constant(constant.value, constant.dtype)
            self._line(f"[[maybe_unused]] constexpr {kind} {identifier(constant.name)} = {text};")
        for param in params_to_round(self.sketch):
            name = identifier(param.name)
            self._line(f"{name} = {self.rounded(Code(name), param.dtype)};")
        for step in launch_steps(self.sketch):
            match step:
                case ir.Let():
                    self._let(step)
                case Condition(kind=Kind.REPEAT):
                    pass  # `_checks` looks at shapes
                case Condition():
                    told = solved_sizes(self.sketch, step) if step.kind is Kind.SIZE else step
                    if told is not None:
                        values = ", ".join(
                            f'{{"{name}", nb::cast({identifier(name)})}}'
                            for name in mentioned(self.sketch, told)
                        )
                        self._line(f"if ({broken(told, self)}) {{")
                        self._line(f"    refuse({_quoted(refusal_text(told))}, {{{values}}});")
                        self._line("}")

    def _let(self, let: ir.Let) -> None:
        kind = {DType.I64: "int64_t", DType.BOOL: "bool"}.get(let.dtype, "double")
        self._line(
            f"[[maybe_unused]] const {kind} {identifier(let.name)} ="
            f" static_cast<{kind}>({self.scalar(let.value)});"
        )

    def _symbol(self, symbol: str, sources: Sequence[SymbolSource]) -> None:
        """The value of a symbol; 0 where all tensors that have it are absent."""
        value = "0"
        for source in reversed(sources):
            name = source.tensor.name
            size = f"{name}_argument.extent({source.axis})"
            if source.offset != ir.Literal(0):
                size = f"({size} - ({self.scalar(source.offset)}))"
            size += f" / {source.step}" if source.step > 1 else ""
            value = (
                f"!{name}_given.is_none() ? {size} : {value}" if source.tensor.optional else size
            )
        self._line(f"[[maybe_unused]] const int64_t {identifier(symbol)} = {value};")

    def _checks(self) -> None:
        for tensor in self._given():
            given = _where_given(tensor)
            for axis, extent in enumerate(tensor.extents):
                repeats = may_repeat(self.sketch, tensor, axis)
                expected = self.scalar(extent)
                self._line(
                    f"{given}check_extent({tensor.name}_argument, {axis}, {expected},"
                    f' {"true" if repeats else "false"}, "{tensor.name}", "{show(extent)}");'
                )
        for tensor in self._given():
            if tensor.role is not ir.Role.INOUT:
                continue
            for other in self._given():
                if other.name != tensor.name:
                    self._line(
                        f'{_where_given(other)}check_apart({tensor.name}_argument, "{tensor.name}",'
                        f' {other.name}_argument, "{other.name}");'
                    )

    def _outputs(self) -> None:
        outputs = self._made()
        for place, tensor in enumerate(outputs):
            shape = ", ".join(f"int64_t{{{self.scalar(extent)}}}" for extent in tensor.extents)
            given = (
                "out_given" if len(outputs) == 1 else f"part(out_given, {place}, {len(outputs)})"
            )
            self._line(
                f'const argument {tensor.name}_argument = output({given}, "{tensor.name}",'
                f' "{tensor.dtype.numpy_name}", {{{shape}}});'
            )
        if outputs:
            self._line("if (!out_given.is_none()) {")
            for place, tensor in enumerate(outputs):
                for other in (*self._given(), *outputs[:place]):
                    self._line(
                        f"    {_where_given(other)}check_apart({tensor.name}_argument,"
                        f' "{tensor.name}", {other.name}_argument, "{other.name}");'
                    )
            self._line("}")

    def _call(self) -> None:
        tensors = passed(self.sketch)
        for index, tensor in enumerate(tensors):
            name, const = tensor.name, ""
            match tensor.role:
                case ir.Role.IN:
                    absent = f"{name}_given.is_none() ? nullptr : " if tensor.optional else ""
                    const, pointer = "const ", f"{absent}{name}_argument.held.place"
                case _:
                    pointer = f'writable({name}_argument.held, "{name}")'
            self._line(f"{const}void *const pointer_{index} = {pointer};")
        arguments = [f"pointer_{index}" for index in range(len(tensors))]
        arguments += [identifier(symbol.name) for symbol in self.sketch.symbols]
        arguments += [identifier(param.name) for param in self.sketch.params]
        for _, tensor, axis in actual_extents(self.sketch):
            actual = f"{tensor.name}_argument.extent({axis})"
            absent = f"{tensor.name}_given.is_none() ? 1 : " if tensor.optional else ""
            arguments.append(f"{absent}{actual}")
        self._line("int64_t status = 0;")
        self._line("{")
        self._line("    const nb::gil_scoped_release released;")
        self._line(f"    status = {self.entry}({', '.join(arguments)});")
        self._line("}")
        # Everything else was checked before.
        late = [c for group in fetch_conditions(self.sketch).values() for c in group]
        late += fetched_conditions(self.sketch).values()
        refusals = ", ".join(f"{{{c.number}, {_quoted(refusal_text(c))}}}" for c in late)
        self._line(f"check_status(status, {{{refusals}}});")
        self._results()

    def _results(self) -> None:
        as_torch = " || ".join(f"{t.name}_argument.torch" for t in self._given()) or "false"
        self._line(f"[[maybe_unused]] const bool as_torch = {as_torch};")
        results = []
        for tensor in passed(self.sketch):
            name = tensor.name
            if tensor.role is not ir.Role.IN:
                self._line(f"copy_back({name}_argument);")
            if tensor.role is ir.Role.INOUT:
                results.append(f"{name}_given")
            elif tensor.role is ir.Role.OUT:
                results.append(f'give({name}_argument, "{tensor.dtype.numpy_name}", as_torch)')
        if len(results) == 1:
            self._line(f"return {results[0]};")
        else:
            self._line(f"return nb::make_tuple({', '.join(results)});")

    def _registration(self) -> str:
        name = self.sketch.name
        arguments: list[str] = []
        for tensor in reversed(self._given()):
            # Only at the end may an argument be left out; elsewhere None is passed.
            last = tensor.optional and all(" = nb::none()" in other for other in arguments)
            arguments.insert(0, f'nb::arg("{tensor.name}").none(){" = nb::none()" if last else ""}')
        if self.sketch.params or self._made():
            arguments.append("nb::kw_only()")
        for param in self.sketch.params:
            default = ""
            if param.default is not None:
                number = param.default if param.dtype.is_float else int(param.default)
                default = f" = {self.constant(number, param.dtype)}"
            arguments.append(f'nb::arg("{param.name}").none(){default}')
        if self._made():
            arguments.append('nb::arg("out").none() = nb::none()')
        shapes = ", ".join(
            f"{t.name}[{', '.join(show(extent) for extent in t.extents)}]: {t.dtype.value}"
            for t in passed(self.sketch)
        )
        listed = ", ".join(["&run", _quoted(f"The sketch {name}: {shapes}."), *arguments])
        return (
            f"NB_MODULE({name}_module, module)\n{{\n    nb::set_leak_warnings(false);\n"
            f'    module.def("{name}", {listed});\n}}'
        )


def _where_given(tensor: ir.Tensor) -> str:
    """The `if` before a check of a tensor that may be absent; "" for any other tensor."""
    return f"if (!{tensor.name}_given.is_none()) " if tensor.optional else ""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'
