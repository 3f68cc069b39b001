"""Precompiled headers for the first includes of C++ sources.

Reading the standard headers takes most of a small kernel's compilation, and generated kernels
include the same ones. A source's first includes, as they stand, become a header of the build cache
that is compiled once; the compiler includes this header ahead of the source, whose own includes
then have no effect (standard headers have guards). A precompiled header that the compiler cannot
use is read as text, with the same result.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

#: The most headers that are precompiled, since each takes 20 to 40 MB of disk.
MOST_HEADERS = 8

_OPENS = re.compile(r"#\s*if(n?def)?\b")
_CLOSES = re.compile(r"#\s*endif\b")
_CONDITION = re.compile(r"#\s*(if|ifdef|ifndef|elif|else|endif)\b")
#: Comments, empty lines and optimisation levels, which do not change what includes mean.
_SILENT = re.compile(r'(//.*|#\s*pragma GCC optimize\("O[0-3s]"\))?$')
_INCLUDE = re.compile(r"#\s*include\s*<[^>]+>\s*(//.*)?$")


def first_includes(source: str) -> str:
    """The lines of `source` up to the last `#include <...>` before any line other than comments,
    preprocessor conditions and optimisation levels; "" where there is none."""
    lines = source.splitlines()
    depth = end = 0
    pending = False
    for number, line in enumerate(map(str.strip, lines), 1):
        if _INCLUDE.match(line):
            pending = True
        elif not _SILENT.match(line) and not _CONDITION.match(line):
            break
        depth += bool(_OPENS.match(line)) - bool(_CLOSES.match(line))
        if pending and depth == 0:
            end, pending = number, False
    told = (line for line in lines[:end] if not _SILENT.match(line.strip()))
    return "".join(f"{line}\n" for line in told)


def precompiled(
    source: str, folder: Path, key: str, compile_header: Callable[[Path, Path], None]
) -> tuple[str, ...]:
    """The compiler's arguments that include the precompiled first includes of `source`; none where
    these includes are seen for the first time, or `folder` cannot be written.

    `key` names the compiler and its flags; `compile_header(header, made)` compiles one header and
    raises OSError where it cannot.
    """
    text = first_includes(source)
    if not text:
        return ()
    digest = hashlib.sha256(f"{key}\0{text}".encode()).hexdigest()[:16]
    header = folder / f"{digest}.hpp"
    made = folder / f"{digest}.hpp.gch"
    try:
        if not header.exists():
            folder.mkdir(parents=True, exist_ok=True)
            header.write_text(text)
            return ()
        if header.read_text() != text:
            return ()
        if not made.exists():
            if len(list(folder.glob("*.gch"))) >= MOST_HEADERS:
                return ()
            with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as place:
                new = Path(place) / made.name
                compile_header(header, new)
                new.replace(made)
    except OSError:
        return ()
    return ("-include", str(header))
