"""Version 2: runs of `sketchc gen`, with every call to a language model.

A call is the line of the run's ledger, whose long texts (messages, replies) stand in `texts`: the
same system prompt of a hundred calls is kept once, and the line can be made again as it was.
"""

STATEMENTS = (
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
    # Which texts `line` names, so that none of them is ever dropped before it.
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
    # Foreign keys are looked up from the other side when rows are dropped.
    "CREATE INDEX verdicts_in ON verdicts (run)",
    "CREATE INDEX measurements_in ON measurements (run)",
    "CREATE INDEX call_texts_in ON call_texts (text)",
    "CREATE INDEX kernels_of ON kernels (sketch)",
)
