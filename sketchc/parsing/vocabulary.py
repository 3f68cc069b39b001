"""Words with a place of their own in the language, for the lexer and for messages."""

#: The sections of a sketch.
SECTIONS = frozenset(
    ("symbols", "params", "let", "tensors", "workspace", "views", "constexpr", "require")
)
