"""Version 1: what a claim about a kernel consists of.

Texts are named by their SHA-256 and stand here once, however many rows need them. Verdicts and
measurements are JSON documents in the form of their `to_json`, with a version, so that a new field
of theirs needs no migration; the columns beside are what is searched by.
"""

STATEMENTS = (
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
    # `id`: the canonical hash, of version `form`. Each spelling that was seen stands below.
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
    # `device` is the machine that was timed on; times in seconds; `symbols` sorted by name.
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
