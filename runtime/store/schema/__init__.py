"""The store's schema as ordered migrations: `MIGRATIONS[n]` leads from version n to n + 1.

A migration that was released is never edited: a change is a further entry. Statements run one by
one in a single transaction, with the new version (`PRAGMA user_version`) set in it.
"""

from __future__ import annotations

from sketchc.runtime.store.schema import claims, runs, signatures

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    claims.STATEMENTS,
    runs.STATEMENTS,
    signatures.STATEMENTS,
)

#: The version that this sketchc reads and writes.
VERSION = len(MIGRATIONS)

#: `PRAGMA application_id`: an SQLite file with another one is not a store ("sktc" in ASCII).
APPLICATION_ID = 0x736B7463
