"""Records for the path that every `sketchc check` takes: attrs without its start-up cost.

attrs writes and compiles the methods of a class when the class is made, 0.5 ms each; with some 140
node and result classes that is half of the time of checking a small sketch, although most of them
are never instantiated. Here the same declarations give the same classes (frozen or not, with
keyword-only fields, `eq=False`, factories, `evolve`), and `__init__` is compiled when the first
instance is made.

Modules on that path import this module. Type checkers see attrs itself, and
classes made here carry `__attrs_attrs__`, so `attrs.evolve`, `attrs.fields` and `attrs.has` work on
them everywhere. Only what the project uses is supported; anything else is a TypeError at import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import define, evolve, field, fields, frozen, has

    __all__ = ["define", "evolve", "field", "fields", "frozen", "has"]
else:
    from operator import attrgetter

    _MISSING = object()

    class Field:
        """One field; the names of the properties are those of `attrs.Attribute`."""

        def __init__(
            self, *, default=_MISSING, factory=None, eq=True, repr=True, kw_only=False, init=True
        ) -> None:
            self.name = self.alias = ""
            self.default = default
            self.factory = factory
            self.eq = eq
            self.repr = repr
            self.kw_only = kw_only
            self.init = init

    #: A field with options, as `attrs.field`.
    field = Field

    def frozen(cls):
        """Make an immutable record class of the annotations of `cls`, in place."""
        _build(cls, eq=True, hashed=True)
        cls.__setattr__ = _refuse
        cls.__delattr__ = _refuse
        return cls

    def define(cls=None, *, eq=True):
        """Make a mutable record class of the annotations of `cls`, in place."""
        if cls is None:
            return lambda cls: _build(cls, eq, hashed=False)
        return _build(cls, eq, hashed=False)

    def fields(cls):
        """The fields of a record class, as `attrs.fields`."""
        return cls.__attrs_attrs__

    def has(cls) -> bool:
        """Whether a class is a record class, of this module or of attrs."""
        return getattr(cls, "__attrs_attrs__", None) is not None

    def evolve(instance, **changes):
        """A copy of a record with some fields changed, as `attrs.evolve`."""
        cls = instance.__class__
        if cls.__dict__.get("__attrs_plain__"):  # nothing but fields: copy them as they are
            if not changes.keys() <= instance.__dict__.keys():
                unknown = ", ".join(changes.keys() - instance.__dict__.keys())
                raise TypeError(f"{cls.__name__} has no field {unknown}")
            copy = object.__new__(cls)
            copy.__dict__.update(instance.__dict__, **changes)
            return copy
        for entry in cls.__attrs_attrs__:
            if entry.init and entry.alias not in changes:
                changes[entry.alias] = getattr(instance, entry.name)
        return cls(**changes)

    def _build(cls, eq, hashed):
        found = {}
        for base in reversed(cls.__mro__[1:]):
            for entry in base.__dict__.get("__attrs_attrs__", ()):
                found[entry.name] = entry
        annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - inspect is slow
        for name, annotation in annotations.items():
            if annotation.startswith(("ClassVar", "typing.ClassVar")):
                continue
            value = cls.__dict__.get(name, _MISSING)
            entry = value if isinstance(value, Field) else field(default=value)
            entry.name, entry.alias = name, name.lstrip("_")
            found[name] = entry
            if value is not _MISSING:
                delattr(cls, name)
        entries = tuple(found.values())
        cls.__attrs_attrs__ = entries
        cls.__attrs_plain__ = not hasattr(cls, "__attrs_post_init__") and all(
            entry.init and entry.alias == entry.name for entry in entries
        )
        cls.__match_args__ = tuple(e.alias for e in entries if e.init and not e.kw_only)
        cls.__init__ = _first_init
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = _repr
        if eq:
            compared = [e.name for e in entries if e.eq]
            cls.__attrs_key__ = (attrgetter(*compared) if compared else _nothing,)
            cls.__eq__ = _eq
            cls.__hash__ = _hash if hashed else None
        return cls

    def _first_init(self, *arguments, **keywords):
        """Stands in for `__init__` until the first instance is made, then compiles it."""
        for base in type(self).__mro__:
            if base.__dict__.get("__init__") is _first_init:
                _compile_init(base)
        self.__init__(*arguments, **keywords)

    def _compile_init(cls) -> None:
        """Write `__init__` out: positional fields, then keyword-only ones, then the factories."""
        scope = {}
        positional, keyword, body = [], [], []
        for number, entry in enumerate(cls.__attrs_attrs__):
            value = entry.alias
            if not entry.init:
                if entry.factory is None and entry.default is _MISSING:
                    continue
                scope[f"_{number}"] = entry.factory or entry.default
                value = f"_{number}()" if entry.factory else f"_{number}"
            elif entry.factory is not None:
                scope[f"_{number}"] = entry.factory
                value = f"_{number}() if {entry.alias} is _missing else {entry.alias}"
                scope["_missing"] = _MISSING
                (keyword if entry.kw_only else positional).append(f"{entry.alias}=_missing")
            elif entry.default is not _MISSING:
                scope[f"_{number}"] = entry.default
                (keyword if entry.kw_only else positional).append(f"{entry.alias}=_{number}")
            else:
                (keyword if entry.kw_only else positional).append(entry.alias)
            body.append(f"    _values[{entry.name!r}] = {value}")
        if hasattr(cls, "__attrs_post_init__"):
            body.append("    self.__attrs_post_init__()")
        parameters = ["self", *positional, *(["*", *keyword] if keyword else [])]
        lines = [f"def __init__({', '.join(parameters)}):", "    _values = self.__dict__", *body]
        exec("\n".join(lines), scope)
        cls.__init__ = scope["__init__"]
        cls.__init__.__qualname__ = f"{cls.__qualname__}.__init__"

    def _nothing(instance) -> tuple:
        return ()

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        key = self.__attrs_key__[0]
        return key(self) == key(other)

    def _hash(self) -> int:
        return hash((self.__class__, self.__attrs_key__[0](self)))

    def _repr(self) -> str:
        shown = (e for e in self.__attrs_attrs__ if e.repr)
        inner = ", ".join(f"{e.name}={getattr(self, e.name, None)!r}" for e in shown)
        return f"{self.__class__.__qualname__}({inner})"

    def _refuse(self, name, value=None) -> None:
        from attrs.exceptions import FrozenInstanceError

        raise FrozenInstanceError
