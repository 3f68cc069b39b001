"""The pages of the diagnostic codes: sketchc/explain/SKxxxx.md, one each."""

from __future__ import annotations

import os
import re

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "explain")
_CODE = re.compile(r"SK\d{4}")


def codes() -> list[str]:
    """All codes that have a page, in order."""
    names = (name.removesuffix(".md") for name in os.listdir(_FOLDER))
    return sorted(name for name in names if _CODE.fullmatch(name))


def page(code: str) -> str | None:
    """The page of a code, or None for one that has none."""
    if not _CODE.fullmatch(code):
        return None
    try:
        with open(os.path.join(_FOLDER, f"{code}.md"), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def title(code: str) -> str:
    """What a code stands for, from the first line of its page ("# SK0123: title")."""
    text = page(code) or ""
    return text.partition("\n")[0].partition(": ")[2]


def near(code: str) -> list[str]:
    """Up to five codes that a mistyped one may mean: the same digits, one too few, the family."""
    import difflib

    known = codes()
    digits = re.sub(r"\D", "", code)
    wanted = f"SK{digits.zfill(4)}" if digits and len(digits) <= 4 else code.upper()
    if wanted in known:
        return [wanted]
    begun = [name for name in known if digits and name.startswith(f"SK{digits}")]
    if begun:
        return begun[:5]
    found = difflib.get_close_matches(wanted, known, n=5, cutoff=0.6)
    return found or [name for name in known if name[:4] == wanted[:4]][:5]
