"""What stands on the pages that explain codes."""

from __future__ import annotations

import re


def block(text: str, section: str) -> str | None:
    """The first fenced ```sketch block of a section ("Example", "Fix") of a page."""
    part = re.search(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    found = re.search(r"^```sketch\n(.*?)^```$", part.group(1), re.M | re.S) if part else None
    return found.group(1) if found else None
