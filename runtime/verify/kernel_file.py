"""Checks of the text of a kernel that somebody else wrote: which function is called, and whether
the kernel does the work itself.

What runs cannot show (modules that lead out of the process, files, processes, frames, inline
assembly) is refused before anything runs. What is merely suspicious (torch computing in the
wrapper, `try` around a launch) only explains a failure: the worker decides, which counts launches
and sees every operation (`guards.wrapper_guard`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.language import parsed
from sketchc.lowering.registry import load_language, load_target, targets_in
from sketchc.lowering.target import Target

Targets = tuple[Target, ...]

#: The class of a file in KernelBench's format, in place of a function.
MODULE_CLASS = "ModelNew"


def entry_point(
    source: str, language: str, name: str, where: str = "the kernel", wanted: str | None = None
) -> str:
    """The name of the function of a kernel's source that is called. `name` is the sketch's,
    `wanted` what the user says. Raises `UsageError`; text that does not parse is taken to define
    `name`, so that verification can say what is wrong with it."""
    spoken = load_language(language)
    if spoken.by_runner:
        return wanted or name  # the name by which a runner is told of it
    in_c = spoken.syntax == "c"
    found = _c_functions(source) if in_c else _python_functions(source, targets_in(language))
    if found is None:
        return wanted or name
    listed = f"it defines {', '.join(found)}" if found else "it defines none"
    if wanted is not None:
        if wanted in found:
            return wanted
        refuse(f"{where} has no entry point {wanted}: {listed}")
    if name in found:
        return name
    if len(found) == 1:
        return found[0]
    kind = 'extern "C" function' if in_c else "public function"
    raise UsageError(f"{where} has no entry point {name} and not exactly one {kind}: {listed}")


def _python_functions(source: str, targets: Targets) -> list[str] | None:
    """Public functions at the top of a file that no target compiles; None if it is no Python.

    Where `__all__` is a plain list, it says which are public.
    """
    if (tree := parsed(source)) is None:
        return None
    kernels = _jitted(tree, targets)
    found = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.name not in kernels
    ]
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name("__all__")], ast.List(elements) | ast.Tuple(elements)):
                public = [e.value for e in elements if isinstance(e, ast.Constant)]
                return [name for name in found if name in public] or found
    return found


def _c_functions(source: str) -> list[str]:
    """Functions that are defined with C linkage, one by one or in a block."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    found: list[str] = re.findall(
        r'extern\s*"C"\s+(?:[\w:]+[\s*&]+)+(\w+)\s*\([^;{}]*\)\s*\{', text
    )
    for block in re.finditer(r'extern\s*"C"\s*\{', text):
        inner = text[block.end() : _closing(text, block.end())]
        depth_one = re.sub(r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}", "{}", inner)
        found += re.findall(r"(?:[\w:]+[\s*&]+)+(\w+)\s*\([^;{}]*\)\s*\{", depth_one)
    return list(dict.fromkeys(found))


def _closing(text: str, start: int) -> int:
    """The place of the brace that closes the one before `start`; else the end of the text."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def is_module_file(path: Path) -> bool:
    """Whether a Python file defines a class `ModelNew`; False for one that cannot be read."""
    try:
        tree = parsed(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    body = tree.body if tree else []
    return any(isinstance(node, ast.ClassDef) and node.name == MODULE_CLASS for node in body)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Parts of torch that run code which no dispatcher sees, or read files.
_TORCH_EXITS = _words(
    "compile jit ops classes utils load save hub package export from_file library "
    "multiprocessing distributed onnx fx cpp_extension numpy tolist from_numpy from_dlpack "
    "to_dlpack untyped_storage __dlpack__ __array__ __array_interface__ "
    "__cuda_array_interface__"
)
#: Names that reach the interpreter itself.
_BUILTINS = _words(
    "eval exec compile open __import__ globals locals vars input breakpoint memoryview "
    "setattr delattr"
)
#: Modules that a file with a `ModelNew` may import, too: it may build and load its own library.
_MODULE_MODULES = (
    "os sys pathlib tempfile subprocess ctypes hashlib shutil textwrap uuid numpy contextlib "
    "logging warnings platform struct time string re copy abc types numbers sysconfig "
    "importlib json random atexit typing_extensions threading"
)
_MODULE_BUILTINS = frozenset({"eval", "exec", "compile", "__import__", "globals", "breakpoint"})
#: Parts of torch that run code which the guard does not see, or that remove the guard.
_MODULE_TORCH_EXITS = _words(
    "compile jit hub package export multiprocessing distributed onnx fx _C _dynamo _inductor "
    "_python_dispatch overrides library"
)
_MODULE_ATTRIBUTES = _words(
    "_disable_current_modes _pop_mode _pop_mode_temporarily _DisableTorchDispatch "
    "DisableTorchFunction DisableTorchFunctionSubclass addaudithook settrace setprofile "
    "pythonapi modules meta_path path_hooks"
)
_ATTRIBUTES = _words(
    "__globals__ __builtins__ __subclasses__ __code__ __closure__ __bases__ __mro__ "
    "__getattribute__ __loader__ __spec__ f_back f_globals f_locals gi_frame tb_frame "
    "_getframe"
)
#: What a wrapper may call on torch; other functions of it compute.
_TORCH_CALLS = _words(
    "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like device "
    "Size no_grad is_tensor finfo iinfo device_of current_device synchronize "
    "get_device_properties get_device_capability inference_mode "
    "reshape permute transpose flatten squeeze unsqueeze"
)
#: What a C++ kernel must not say, and why, in order.
_CPP_WORDS = (
    (r"\b(__)?asm(__)?\b", "inline assembly"),
    (r"\.incbin\b", "a file embedded by the assembler"),
    (r"\b__has_include|\b__has_embed|#\s*embed\b", "a look at the machine's files"),
    (r"\b_*(system|popen|v?[fF]ork|f?exec(ve(at)?|[lv]p?e?)|posix_spawnp?)\b", "a process"),
    (r"\b(syscall|ptrace|wordexp)\b", "a process"),
    (r"\b(dlopen|dlsym|dlmopen)\b", "code from elsewhere"),
    (r"\b((fopen|freopen|openat)(64)?|open64|creat|unlink|mmap|mprotect)\b", "files"),
    (r"\bopen\s*\(", "files"),
    (r"\b(i|o)?fstream\b|\bstd::filesystem\b", "files"),
    (r"\b(socket|getaddrinfo)\s*\(", "the network"),
    (r"\b(secure_)?(getenv|setenv|putenv|environ)\b", "the environment"),
    (r"\b(sigaction|signal|setjmp|longjmp|atexit|on_exit)\s*\(", "signals or jumps"),
    (r"__attribute__\s*\(\(\s*(constructor|destructor|ifunc)", "code that runs by itself"),
)


@attrs.frozen
class Finding:
    """One conspicuous thing in a kernel's text; if `refused`, a failure of the class "policy"."""

    line: int
    text: str
    refused: bool


def inspect_kernel(kernel: Kernel) -> tuple[Finding, ...]:
    """The findings in a kernel's text, by line; none for Python that does not parse, and for a
    language that nobody here reads."""
    # Of the target's own language: another target of documents may use the same word for one.
    module = kernel.entry == MODULE_CLASS
    own = load_language(kernel.language) if module else load_target(kernel.target).language
    syntax = own.syntax
    if syntax == "other":
        return ()
    if syntax == "c":
        findings = _c(kernel.source, load_target(kernel.target))
    else:
        tree = parsed(kernel.source.encode("utf-8", "replace").decode())
        if tree is None:
            return ()
        if module:
            findings = _module(tree, targets_in(kernel.language))
        else:
            findings = _python(tree, (load_target(kernel.target),))
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.line))


def refusal_of(findings: tuple[Finding, ...]) -> str:
    """The findings that are failures as one sentence; "" when there are none."""
    refused = [finding for finding in findings if finding.refused]
    return "; ".join(f"line {finding.line}: {finding.text}" for finding in refused[:5])


def explanation(findings: tuple[Finding, ...]) -> str:
    """The merely suspicious findings, one a line."""
    return "\n".join(
        f"line {finding.line}: {finding.text}" for finding in findings if not finding.refused
    )


# ---------------------------------------------------------------- Python


def _modules(targets: Targets) -> tuple[str, ...]:
    """The modules that a kernel for one of the targets may import."""
    return tuple(dict.fromkeys(name for target in targets for name in target.imports))


def _exits(package: str, targets: Targets) -> frozenset[str]:
    """The parts of a target's own package that lead out of a kernel; none of other packages."""
    return frozenset(
        name for target in targets if target.dsl_package == package for name in target.exits
    )


def _python(tree: ast.Module, targets: Targets) -> Iterator[Finding]:
    yield from _imports(tree, _modules(targets), _TORCH_EXITS, targets)
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) if name in _BUILTINS:
                yield Finding(node.lineno, f"it uses {name}", refused=True)
            case ast.Attribute(_, name) if name in _ATTRIBUTES:
                yield Finding(node.lineno, f"it reaches for {name}", refused=True)
            case ast.Attribute():
                yield from _attribute(node, targets)
    kernels = _jitted(tree, targets)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name not in kernels:
            yield from _wrapper(function, kernels)


def _imports(
    tree: ast.Module, modules: tuple[str, ...], torch_exits: frozenset[str], targets: Targets
) -> Iterator[Finding]:
    """Findings for imports other than `modules`, of private parts, and of parts that lead out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = ""
            if isinstance(node, ast.ImportFrom):
                start = "." * node.level + (node.module or "")
            for alias in node.names:
                path = f"{start}.{alias.name}" if start else alias.name
                parts = path.split(".")
                fits = any(path == known or path.startswith(f"{known}.") for known in modules)
                fits = fits or path == "collections"
                private = any(part.startswith("_") and part != "__future__" for part in parts)
                exits = torch_exits if parts[0] == "torch" else _exits(parts[0], targets)
                if not fits or private or not exits.isdisjoint(parts[1:]):
                    known = ", ".join(modules)
                    what = f"it imports {path}; a kernel may import {known}"
                    yield Finding(node.lineno, what, refused=True)


# ---------------------------------------------------------------- ModelNew


def _module(tree: ast.Module, targets: Targets) -> Iterator[Finding]:
    """Findings in a file that may build and load libraries: the guard has to see most of it."""
    modules = (*_modules(targets), *_MODULE_MODULES.split())
    yield from _imports(tree, modules, _MODULE_TORCH_EXITS, targets)
    for node in ast.walk(tree):
        match node:
            case ast.Name(name) if name in _MODULE_BUILTINS:
                yield Finding(node.lineno, f"it uses {name}", refused=True)
            case ast.Attribute(_, name) if name in _ATTRIBUTES | _MODULE_ATTRIBUTES:
                # Models have a method `modules`.
                if name != "modules" or ast.unparse(node).endswith("sys.modules"):
                    yield Finding(node.lineno, f"it reaches for {name}", refused=True)
            case ast.Attribute(_, name) if _root(node) == "torch":
                if name in _MODULE_TORCH_EXITS or (_private(name) and name != "__file__"):
                    yield Finding(node.lineno, f"it uses torch's {name}", refused=True)
            case ast.Call(ast.Name("getattr"), [ast.Name("torch" | "sys"), *_]):
                yield Finding(node.lineno, "it looks up a name of torch or sys", refused=True)
            case ast.Attribute(ast.Name("np" | "numpy"), "ndarray"):
                yield Finding(node.lineno, "it uses numpy.ndarray itself", refused=False)
            case ast.FunctionDef(name="forward"):
                yield from _wrapper(node, _jitted(tree, targets))


def _attribute(node: ast.Attribute, targets: Targets) -> Iterator[Finding]:
    """Findings for attributes like `torch.compile`, `torch._C`, `x.numpy()`, `triton.runtime`."""
    root = _root(node)
    known = {name for target in targets for name in target.dsl_names}
    packages = {target.dsl_package for target in targets} - {""}
    if root in packages and (node.attr in _exits(root, targets) or node.attr.startswith("_")):
        yield Finding(node.lineno, f"it uses {root}'s {node.attr}", refused=True)
    elif root == "torch" and (node.attr in _TORCH_EXITS or _private(node.attr)):
        yield Finding(node.lineno, f"it uses torch's {node.attr}", refused=True)
    elif root not in known | {"torch"} and node.attr in _HANDED_OUT:
        yield Finding(node.lineno, f"it takes a tensor's memory by {node.attr}", refused=True)


#: Methods of tensors by which their elements leave torch.
_HANDED_OUT = _words(
    "numpy tolist untyped_storage __dlpack__ __array__ add_pre_run_hook __array_interface__ "
    "__cuda_array_interface__"
)


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__version")


def _root(node: ast.expr) -> str:
    """The name that a chain of attributes starts from; "" for anything else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _jitted(tree: ast.Module, targets: Targets) -> set[str]:
    """Names of functions that a target's compiler compiles."""
    packages = {target.dsl_package for target in targets} - {""}
    marks = {target.kernel_mark.rpartition(".")[2] for target in targets} - {""}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                text = ast.unparse(decorator)  # a mark may have another name here: `tr.jit`
                if _root(called) in packages or any(mark in text for mark in marks):
                    found.add(node.name)
    return found


def _wrapper(function: ast.FunctionDef, kernels: set[str]) -> Iterator[Finding]:
    """Findings in host code that computes with torch, or catches what a launch raises."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if _root(node.func) == "torch" and name.rpartition(".")[2] not in _TORCH_CALLS:
                yield Finding(node.lineno, f"the wrapper calls {name}", refused=False)
        if isinstance(node, ast.Try):
            inside = [inner for statement in node.body for inner in ast.walk(statement)]
            subscripted = [inner.value for inner in inside if isinstance(inner, ast.Subscript)]
            if any(isinstance(one, ast.Name) and one.id in kernels for one in subscripted):
                yield Finding(node.lineno, "a launch stands inside of try", refused=False)


# ---------------------------------------------------------------- C and C++


def _c(source: str, target: Target) -> Iterator[Finding]:
    headers = target.tolerated.union(target.imports)
    # A whole instruction, no label or assignment of its name: a host's assembler fails at it.
    first = "|".join(map(re.escape, target.assembly)) or "(?!)"
    of_device = rf'\basm(?:\s+volatile)?\s*\(\s*"(?:{first})(?:\.[a-z0-9_]+)*(?:;| +[\[{{%])'
    # A line that ends in a backslash goes on in the next.
    text = without_comments(re.sub(r"\\\r?\n", "", source))
    for number, line in enumerate(text.splitlines(), 1):
        include = re.match(r"\s*(?:#|%:|\?\?=)\s*include(?:_next)?\b\s*(.*)", line)
        if include is not None:
            name = re.fullmatch(r"[<\"]([^>\"]*)[>\"]\s*", include[1])
            if name is None or name[1].strip() not in headers:
                what = f"it includes {include[1].strip() or 'nothing'}"
                yield Finding(number, f"{what}, which no kernel needs", refused=True)
        hosted = re.sub(of_device, "", line)
        for pattern, what in _CPP_WORDS:
            found = re.search(pattern, hosted)
            if found is not None:
                yield Finding(number, f"`{found[0].strip()}`: {what}", refused=True)
        if re.search(r"##|%:%:", line):
            yield Finding(number, "`##`: names pasted together by the preprocessor", refused=True)
        if target.language.name != "c++" and re.search(r"\?\?[=/'()!<>-]", line):
            yield Finding(number, "a trigraph, which C99 reads as another sign", refused=True)


def without_comments(source: str) -> str:
    """The source with comments blanked, so that a word in one means nothing."""

    def blank(found: re.Match[str]) -> str:
        text = found[0]
        return text if text[0] in "\"'" else re.sub(r"[^\n]", " ", text)

    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    return re.sub(pattern, blank, source, flags=re.DOTALL)
