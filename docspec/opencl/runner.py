"""The runner of the target `opencl`: launches the kernels of a file on the first OpenCL device, by
the plan in the file's comment (basic.md), under the protocol of docs/RUNNERS.md.

    python runner.py                        reads paths of manifests, answers each in a line
    python runner.py --build FILE FOLDER    compiles FILE and checks its plan; says what is wrong

What PoCL has compiled stays in FOLDER, the artefact, from which a run goes on.

It needs pyopencl and NumPy, and nothing of sketchc.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import os
import re
import shutil
import sys
import tempfile

# The cache of PoCL lies in the user's home, which is not there in a sandbox.
BUILDS = sys.argv[1:2] == ["--build"]
os.environ["POCL_CACHE_DIR"] = sys.argv[3] if BUILDS else tempfile.mkdtemp(prefix="pocl-")
os.environ["PYOPENCL_NO_CACHE"] = "1"
os.environ["XDG_CACHE_HOME"] = os.environ["POCL_CACHE_DIR"]

import numpy as np
import pyopencl as cl

OPTIONS = ["-cl-std=CL1.2", "-cl-kernel-arg-info"]
PLAN = re.compile(r"/\*\s*plan\b(.*?)\*/", re.DOTALL)
#: How elements of the protocol's types are held in memory.
ELEMENTS = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": "u2", "i64": "i8", "i32": "i4", "i16": "i2",
    "i8": "i1", "u32": "u4", "u8": "u1", "bool": "u1",
}  # fmt: skip
#: What OpenCL calls them.
NAMES = {
    "double": "f8", "float": "f4", "half": "f2", "long": "i8", "ulong": "u8", "int": "i4",
    "uint": "u4", "short": "i2", "ushort": "u2", "char": "i1", "uchar": "u1",
}  # fmt: skip
#: What a workspace holds before something is written into it.
PATTERN = np.array([0x7F], np.uint8)
TYPE_NAME = cl.kernel_arg_info.TYPE_NAME
ADDRESS = cl.kernel_arg_info.ADDRESS_QUALIFIER
LOCAL = cl.kernel_arg_address_qualifier.LOCAL
PRIVATE = cl.kernel_arg_address_qualifier.PRIVATE
STEPS = {
    "kernel": {"kernel", "global", "local", "arguments", "when"},
    "fill": {"fill", "value", "when"},
    "repeat": {"repeat", "times", "steps"},
}
NEEDED = {"kernel": {"global", "arguments"}, "fill": {"value"}, "repeat": {"times", "steps"}}


class PlanError(Exception):
    """The plan, or a launch by it, is wrong: the message says how."""


# ---------------------------------------------------------------- expressions

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Div: operator.truediv,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.USub: operator.neg, ast.Not: operator.not_,
}  # fmt: skip
FUNCTIONS = {"min": min, "max": max, "cdiv": lambda a, b: -(-a // b)}


def value_of(expression, names):
    """The number that an expression of the plan has, with the scalars in `names`."""
    if isinstance(expression, int | float):
        return expression
    try:
        return _value(ast.parse(str(expression), mode="eval").body, names, expression)
    except (SyntaxError, ArithmeticError, TypeError, ValueError) as error:
        raise PlanError(f"`{expression}` has no value: {error}") from None


def _value(node, names, whole):
    match node:
        case ast.Constant(int() | float() as number):
            return number
        case ast.Name(name) if name in names:
            return names[name]
        case ast.Name(name):
            raise PlanError(f"`{whole}`: {name} is no scalar; known: {', '.join(names)}")
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, names, whole), _value(right, names, whole))
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand, names, whole))
        case ast.Compare(left, [op], [right]) if type(op) in OPERATORS:
            return int(OPERATORS[type(op)](_value(left, names, whole), _value(right, names, whole)))
        case ast.Call(ast.Name(name), [*given], []) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(one, names, whole) for one in given))
    raise PlanError(f"`{whole}`: write numbers, scalars, + - * // % / << >>, < <= == and the like, "
                    "min(a, b), max(a, b), cdiv(a, b)")  # fmt: skip


# ---------------------------------------------------------------- the file


class Program:
    """A compiled file with its plan."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.source = file.read()
        device = cl.get_platforms()[0].get_devices()[0]
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.most = device.max_work_group_size
        self.program = cl.Program(self.context, self.source).build(OPTIONS)
        self.kernels = {kernel.function_name: kernel for kernel in self.program.all_kernels()}
        self.plan = self._plan()

    def _plan(self):
        found = PLAN.findall(self.source)
        if len(found) != 1:
            raise PlanError(f"the file needs one comment /* plan {{...}} */; it has {len(found)}")
        try:
            plan = json.loads(found[0])
        except ValueError as error:
            raise PlanError(f"the plan is not JSON: {error}") from None
        if not isinstance(plan, dict) or not isinstance(plan.get("launches"), list):
            raise PlanError('the plan is an object {"launches": [...]}')
        if unknown := plan.keys() - {"launches", "workspaces"}:
            raise PlanError(f"the plan has launches and workspaces, not {min(unknown)}")
        if not isinstance(plan.setdefault("workspaces", {}), dict):
            raise PlanError("workspaces is an object")
        for name, one in plan["workspaces"].items():
            if not isinstance(one, dict) or one.keys() != {"type", "elements"}:
                raise PlanError(f'the workspace {name} needs "type" and "elements", no more')
            if one["type"] not in NAMES:
                known = ", ".join(NAMES)
                raise PlanError(f"the workspace {name}: unknown type {one['type']!r}; {known}")
        self._check(plan["launches"])
        return plan

    def _check(self, steps):
        """The form of the plan's steps."""
        for step in steps:
            kind = next((kind for kind in STEPS if isinstance(step, dict) and kind in step), None)
            if kind is None:
                raise PlanError(f'a step has "kernel", "fill" or "repeat": {json.dumps(step)}')
            if unknown := step.keys() - STEPS[kind]:
                known = ", ".join(sorted(STEPS[kind]))
                raise PlanError(f"a step with {kind} has {known}, not {min(unknown)}")
            if lacking := NEEDED[kind] - step.keys():
                raise PlanError(f"a step with {kind} needs {min(lacking)}")
            if not isinstance(step[kind], str):
                raise PlanError(f"{kind} names one thing: {json.dumps(step[kind])}")
            if kind == "repeat":
                if not isinstance(step["steps"], list):
                    raise PlanError("steps is a list")
                self._check(step["steps"])
            if kind != "kernel":
                continue
            kernel = self.kernels.get(step["kernel"])
            if kernel is None:
                known = ", ".join(self.kernels) or "none"
                raise PlanError(f"there is no __kernel {step['kernel']}; there are: {known}")
            for key in ("global", "arguments"):
                if not isinstance(step.get(key), list):
                    raise PlanError(f"the launch of {step['kernel']} needs {key}: a list")
            if not 1 <= len(step["global"]) <= 3:
                raise PlanError(f"global of {step['kernel']} has one to three numbers")
            if len(step.get("local", step["global"])) != len(step["global"]):
                raise PlanError(f"local of {step['kernel']} has as many numbers as global")
            if kernel.num_args != len(step["arguments"]):
                raise PlanError(
                    f"{step['kernel']} takes {kernel.num_args} arguments, and the plan gives "
                    f"{len(step['arguments'])}"
                )


# ---------------------------------------------------------------- one run


class Run:
    """One run of a program: its buffers, and the scalars by name."""

    def __init__(self, program, manifest):
        self.program = program
        self.names = {scalar["name"]: scalar["value"] for scalar in manifest["scalars"]}
        self.types, self.buffers, self.whole = {}, {}, {}
        for tensor in manifest["tensors"]:
            self._tensor(tensor)
        for name, one in program.plan["workspaces"].items():
            size = math.ceil(value_of(one["elements"], self.names))
            self.types[name] = np.dtype(NAMES[one["type"]])
            buffer = self._buffer(max(size, 1) * self.types[name].itemsize)
            cl.enqueue_fill_buffer(program.queue, buffer, PATTERN, 0, buffer.size)
            self.buffers[name] = buffer

    def _buffer(self, size):
        return cl.Buffer(self.program.context, cl.mem_flags.READ_WRITE, size)

    def _tensor(self, tensor):
        """The tensor's memory: a part of a buffer that holds the whole file, guards included."""
        name = tensor["name"]
        self.types[name] = np.dtype(ELEMENTS[tensor["dtype"]])
        if tensor["role"] == "absent":
            self.buffers[name] = None
            return
        whole = np.fromfile(tensor["file"], np.uint8)
        buffer = self._buffer(whole.size)
        cl.enqueue_copy(self.program.queue, buffer, whole)
        self.whole[tensor["file"]] = (buffer, whole)
        # There is no part without bytes: the whole stands for it, and nothing may be written.
        empty = tensor["bytes"] == 0
        self.buffers[name] = (
            buffer if empty else buffer.get_sub_region(tensor["offset"], tensor["bytes"])
        )

    def steps(self, steps):
        """Do the steps of a plan in order."""
        for step in steps:
            if not value_of(step.get("when", 1), self.names):
                continue
            if "repeat" in step:
                for number in range(int(value_of(step["times"], self.names))):
                    self.names[step["repeat"]] = number
                    self.steps(step["steps"])
                self.names.pop(step["repeat"], None)
            elif "fill" in step:
                self._fill(step)
            else:
                self._launch(step)

    def _fill(self, step):
        buffer, kind = self._memory(step["fill"]), self.types[step["fill"]]
        value = np.array([value_of(step["value"], self.names)]).astype(kind)
        inside = not any(buffer is whole for whole, _ in self.whole.values())
        if buffer is not None and inside:
            cl.enqueue_fill_buffer(self.program.queue, buffer, value, 0, buffer.size)

    def _memory(self, name):
        if name not in self.buffers:
            raise PlanError(f"{name} is no tensor and no workspace: {', '.join(self.buffers)}")
        return self.buffers[name]

    def _launch(self, step):
        kernel = self.program.kernels[step["kernel"]]
        size = [int(value_of(one, self.names)) for one in step["global"]]
        local = [int(value_of(one, self.names)) for one in step.get("local", [])]
        if local and (min(local) < 1 or math.prod(local) > self.program.most):
            raise PlanError(f"local {local} is not between 1 and {self.program.most} items")
        if local:  # the global size is rounded up: kernels test their index
            size = [-(-one // group) * group for one, group in zip(size, local, strict=True)]
        if min(size) <= 0:
            return
        for place, given in enumerate(step["arguments"]):
            kernel.set_arg(place, self._argument(kernel, place, given))
        cl.enqueue_nd_range_kernel(self.program.queue, kernel, size, local or None)

    def _argument(self, kernel, place, given):
        """What is passed for an argument of the plan, by the parameter that takes it."""
        spelled = kernel.get_arg_info(place, TYPE_NAME)
        address = kernel.get_arg_info(place, ADDRESS)
        if not isinstance(given, str | int | float | dict):
            raise PlanError(f"argument {place + 1}: {json.dumps(given)} is no name and no number")
        where = f"argument {place + 1} of {kernel.function_name}, {spelled}"
        if isinstance(given, dict):
            if address != LOCAL or given.keys() != {"local"}:
                raise PlanError(f'{where}: {{"local": bytes}} is for a __local pointer')
            return cl.LocalMemory(int(value_of(given["local"], self.names)))
        if address == LOCAL:
            raise PlanError(f'{where}: a __local pointer takes {{"local": bytes}}')
        if address != PRIVATE:
            buffer = self._memory(given)
            base = re.sub(r"\d+$", "", spelled.rstrip("*").strip())
            kind = self.types[given]
            if base in NAMES and np.dtype(NAMES[base]).itemsize != kind.itemsize:
                raise PlanError(f"{where}: {given} has elements of {kind.itemsize} bytes")
            return buffer
        if given in self.buffers:
            raise PlanError(f"{where}: {given} is a tensor, and the parameter no pointer")
        if spelled not in NAMES:
            raise PlanError(f"{where}: scalars have one of the types {', '.join(NAMES)}")
        value, kind = value_of(given, self.names), np.dtype(NAMES[spelled])
        with np.errstate(over="ignore"):
            made = np.array(value).astype(kind)
        if kind.kind in "iu" and int(made) != int(value):
            raise PlanError(f"{where}: {given} = {value} does not fit")
        return made[()]

    def write_back(self):
        """Leave the memory of every tensor in its file."""
        for path, (buffer, whole) in self.whole.items():
            cl.enqueue_copy(self.program.queue, whole, buffer)
            self.program.queue.finish()
            whole.tofile(path)


def failed(stage, message, log=""):
    """The answer for a failure."""
    return {"status": "failed", "stage": stage, "message": message, "log": log}


def answer(path, programs):
    """The answer to one manifest; `programs` keeps what was compiled, by its path."""
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    kernel = manifest["kernel"]
    try:
        if kernel not in programs:
            if manifest["artefact"]:
                cache = os.environ["POCL_CACHE_DIR"]
                shutil.copytree(manifest["artefact"], cache, dirs_exist_ok=True)
            programs[kernel] = Program(kernel)
    except (PlanError, cl.RuntimeError) as error:
        return failed("compile", *told(error))
    program = programs[kernel]
    try:
        run = Run(program, manifest)
        run.steps(program.plan["launches"])
        program.queue.finish()
        run.write_back()
    except (PlanError, cl.Error) as error:
        return failed("launch", *told(error))
    except MemoryError:
        return failed("launch", "there is not enough memory")
    return {"status": "done"}


def told(error):
    """An error as (message, log): the first line that complains, without the names of temporary
    files."""
    text = re.sub(r"(\w+): [^\s:]*/tempfile_\w+\.cl:(\d+:\d+):", r"line \2: \1:", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("(options:", "Build on <"))]
    first = next((line for line in lines if "error:" in line), lines[0] if lines else "?")
    return first, "\n".join(lines)


def main():
    """See the module."""
    if BUILDS:
        try:
            Program(sys.argv[2])
        except (PlanError, cl.RuntimeError) as error:
            message, log = told(error)
            print(log if "error:" in message else f"error: {message}")
            return 1
        return 0
    programs = {}
    for line in sys.stdin:
        print(json.dumps(answer(line.rstrip("\n"), programs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
