"""The store's schema as ordered migrations: `MIGRATIONS[n]` leads from version n to n + 1.

A migration that was released is never edited: a change is a further entry. Statements run one by
one in a single transaction, with the new version (`PRAGMA user_version`) set in it.
"""

#: Version 1: the parts of a claim about a kernel.
#:
#: Texts are named by their SHA-256 and are kept once, however many rows refer to them. Verdicts and
#: measurements are JSON documents in the form of their `to_json`, with a version, so that a new
#: field in them needs no migration; the other columns are those that queries use.
CLAIMS = (
    "CREATE TABLE texts (digest TEXT PRIMARY KEY, content TEXT NOT NULL) STRICT",
    # `id`: SHA-256 over the text, the modules beside the file that it imports, and `subject`: which
    # class or function of the file is the task.
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        subject TEXT NOT NULL,
        text TEXT NOT NULL REFERENCES texts (digest),
        recorded TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE task_modules (
        task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        text TEXT NOT NULL REFERENCES texts (digest),
        PRIMARY KEY (task, name)
    ) STRICT""",
    # `id`: the canonical hash, of version `form`. `sketch_texts` has every recorded spelling.
    """CREATE TABLE sketches (
        id TEXT PRIMARY KEY,
        form INTEGER NOT NULL,
        name TEXT NOT NULL,
        recorded TEXT NOT NULL
    ) STRICT""",
    # `name` picks the sketch in a text that holds several.
    """CREATE TABLE sketch_texts (
        sketch TEXT NOT NULL REFERENCES sketches (id) ON DELETE CASCADE,
        text TEXT NOT NULL REFERENCES texts (digest),
        name TEXT NOT NULL,
        PRIMARY KEY (sketch, text, name)
    ) STRICT""",
    # `sketch` and `sketch_text` are NULL for a kernel that somebody wrote without a sketch.
    """CREATE TABLE kernels (
        id TEXT PRIMARY KEY,
        sketch TEXT REFERENCES sketches (id),
        sketch_text TEXT REFERENCES texts (digest),
        target TEXT NOT NULL,
        hardware TEXT NOT NULL,
        name TEXT NOT NULL,
        entry TEXT NOT NULL,
        language TEXT NOT NULL,
        origin TEXT NOT NULL,
        constants TEXT NOT NULL,
        text TEXT NOT NULL REFERENCES texts (digest),
        recorded TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE kernel_files (
        kernel TEXT NOT NULL REFERENCES kernels (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        text TEXT NOT NULL REFERENCES texts (digest),
        PRIMARY KEY (kernel, name)
    ) STRICT""",
    "CREATE TABLE environments (id TEXT PRIMARY KEY, versions TEXT NOT NULL) STRICT",
    # Seeds are text: they may exceed 64 bits.
    """CREATE TABLE verdicts (
        id TEXT PRIMARY KEY,
        kernel TEXT NOT NULL REFERENCES kernels (id),
        task TEXT NOT NULL REFERENCES tasks (id),
        environment TEXT NOT NULL REFERENCES environments (id),
        passed INTEGER NOT NULL,
        failure TEXT NOT NULL,
        cases INTEGER NOT NULL,
        how_it_runs TEXT NOT NULL,
        seed TEXT NOT NULL,
        format INTEGER NOT NULL,
        evidence TEXT NOT NULL,
        recorded TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX verdicts_of ON verdicts (kernel, task)",
    "CREATE INDEX verdicts_on ON verdicts (task)",
    # `device` is the machine on which the kernel was timed; times in seconds; `symbols` sorted by
    # name.
    """CREATE TABLE measurements (
        id TEXT PRIMARY KEY,
        kernel TEXT NOT NULL REFERENCES kernels (id),
        task TEXT NOT NULL REFERENCES tasks (id),
        environment TEXT NOT NULL REFERENCES environments (id),
        device TEXT NOT NULL,
        symbols TEXT NOT NULL,
        precision TEXT NOT NULL,
        passed INTEGER NOT NULL,
        failure TEXT NOT NULL,
        median REAL NOT NULL,
        speedup REAL,
        seed TEXT NOT NULL,
        format INTEGER NOT NULL,
        evidence TEXT NOT NULL,
        recorded TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX measurements_of ON measurements (kernel, task)",
    "CREATE INDEX measurements_on ON measurements (task, device, median)",
)

#: Version 2: runs of `sketchc gen`, with every call to a language model.
#:
#: A call is the line of the run's ledger, whose long texts (messages, replies) are in `texts`: the
#: system prompt that a hundred calls share is kept once, and the line can be restored exactly.
RUNS = (
    # `folder` is where the run's files are; `trace` the steps, routes and versions, as JSON.
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        task TEXT NOT NULL REFERENCES tasks (id),
        environment TEXT NOT NULL REFERENCES environments (id),
        target TEXT NOT NULL,
        hardware TEXT NOT NULL,
        workflow TEXT NOT NULL,
        coder TEXT NOT NULL,
        seed TEXT NOT NULL,
        outcome TEXT NOT NULL,
        reason TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        folder TEXT NOT NULL,
        header TEXT NOT NULL,
        trace TEXT NOT NULL,
        recorded TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE calls (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        started TEXT NOT NULL,
        provider TEXT NOT NULL,
        purpose TEXT NOT NULL,
        model TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost REAL,
        seconds REAL NOT NULL,
        error TEXT NOT NULL,
        line TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) STRICT""",
    # The texts that `line` names, so that none of them is dropped before the call.
    """CREATE TABLE call_texts (
        run TEXT NOT NULL,
        number INTEGER NOT NULL,
        text TEXT NOT NULL REFERENCES texts (digest),
        PRIMARY KEY (run, number, text),
        FOREIGN KEY (run, number) REFERENCES calls (run, number) ON DELETE CASCADE
    ) STRICT""",
    "CREATE INDEX runs_of ON runs (task)",
    # Which run a verdict or a measurement was made in; NULL for `sketchc verify` and `bench`.
    "ALTER TABLE verdicts ADD COLUMN run TEXT REFERENCES runs (id) ON DELETE SET NULL",
    "ALTER TABLE measurements ADD COLUMN run TEXT REFERENCES runs (id) ON DELETE SET NULL",
    # When rows are dropped, the rows that refer to them are looked up.
    "CREATE INDEX verdicts_in ON verdicts (run)",
    "CREATE INDEX measurements_in ON measurements (run)",
    "CREATE INDEX call_texts_in ON call_texts (text)",
    "CREATE INDEX kernels_of ON kernels (sketch)",
)

#: Version 3: the sketch that a kernel by others was called by, where `--signature` named one.
#:
#: The signature belongs to the verdict and not to the kernel: a file may be verified with and
#: without one, and stays refuted once it was. NULL where none was named; a kernel of a run has its
#: own sketch.
SIGNATURES = (
    "ALTER TABLE verdicts ADD COLUMN signature TEXT REFERENCES texts (digest)",
    "CREATE INDEX verdicts_by ON verdicts (signature)",
)

#: Version 4: the modules that `sketchc.compile` made, as the files that make them up.
#:
#: `id`: a digest of what a module was made from: the task, the target, the chip, the versions of
#: sketchc and torch. What was built from the files is not kept: a drop-in builds it again.
BUILDS = (
    """CREATE TABLE builds (
        id TEXT PRIMARY KEY,
        task TEXT NOT NULL REFERENCES tasks (id),
        name TEXT NOT NULL,
        target TEXT NOT NULL,
        hardware TEXT NOT NULL,
        recorded TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE build_files (
        build TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        text TEXT NOT NULL REFERENCES texts (digest),
        PRIMARY KEY (build, name)
    ) STRICT""",
    "CREATE INDEX builds_of ON builds (task)",
    "CREATE INDEX build_files_in ON build_files (text)",
)

#: Version 5: what `sketchc tune` measured, point by point, and the point that it chose.
#:
#: `id`: a digest of all that times depend on: the sketch, the target, the chip, the device, the
#: compilers, the sizes, the threads, the constants that did not vary (`fixed`), whether caches were
#: cold, and the task. `best` is `null` until a point was verified; `seconds` are then of that point
#: and `default_seconds` of the plan's own choice, both from one process.
TUNINGS = (
    """CREATE TABLE tunings (
        id TEXT PRIMARY KEY,
        sketch TEXT NOT NULL REFERENCES sketches (id),
        task TEXT NOT NULL REFERENCES tasks (id),
        environment TEXT NOT NULL REFERENCES environments (id),
        target TEXT NOT NULL,
        hardware TEXT NOT NULL,
        device TEXT NOT NULL,
        compilers TEXT NOT NULL,
        symbols TEXT NOT NULL,
        threads INTEGER NOT NULL,
        cold INTEGER NOT NULL,
        fixed TEXT NOT NULL,
        best TEXT NOT NULL,
        seconds REAL,
        default_seconds REAL,
        recorded TEXT NOT NULL
    ) STRICT""",
    # `point`: names and values, sorted by name; `failure` is "" for a point that counts.
    """CREATE TABLE tuning_points (
        tuning TEXT NOT NULL REFERENCES tunings (id) ON DELETE CASCADE,
        point TEXT NOT NULL,
        seconds REAL,
        samples TEXT NOT NULL,
        failure TEXT NOT NULL,
        reason TEXT NOT NULL,
        recorded TEXT NOT NULL,
        PRIMARY KEY (tuning, point)
    ) STRICT""",
    "CREATE INDEX tunings_of ON tunings (sketch, target)",
    "CREATE INDEX tunings_on ON tunings (task)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (CLAIMS, RUNS, SIGNATURES, BUILDS, TUNINGS)

#: The version that this sketchc reads and writes.
VERSION = len(MIGRATIONS)

#: `PRAGMA application_id`: an SQLite file with another one is not a store ("sktc" in ASCII).
APPLICATION_ID = 0x736B7463

#: The tables, each after those that it refers to, with their columns whose text is JSON.
TABLES: dict[str, tuple[str, ...]] = {
    "texts": (),
    "tasks": (),
    "task_modules": (),
    "sketches": (),
    "sketch_texts": (),
    "kernels": ("constants",),
    "kernel_files": (),
    "environments": ("versions",),
    "runs": ("header", "trace"),
    "calls": ("line",),
    "call_texts": (),
    "verdicts": ("evidence",),
    "measurements": ("symbols", "evidence"),
    "builds": (),
    "build_files": (),
    "tunings": ("compilers", "symbols", "fixed", "best"),
    "tuning_points": ("point", "samples"),
}
