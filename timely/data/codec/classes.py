"""Encoding of the user's classes: by name and fields, never by code.

Dataclasses, NamedTuples, msgspec Structs and enums are known by their fields; any other class is *registered*
with a pair of functions. What is read names a class as `module:qualname`. Only a class of those kinds, in a module that the
program has imported already, is ever taken for it, and a dataclass is filled without calling code of its own, so that bytes
from a socket or a disk can do nothing but make values. Every process builds the program before it reads any.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from enum import Enum, Flag
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeVar, cast

import msgspec

from timely.data.codec import records
from timely.data.codec.records import Column, ColumnWriter, Pack, read, read_rows, set_packer, understands
from timely.errors import CodecError, error_text

T = TypeVar("T")

OBJECT, ENUM, FLAG, REGISTERED = 48, 49, 50, 51

_classes: dict[str, type] = {}  # Classes that this process has carried, by name. Local classes have no other address.
_readers: dict[str, Callable[[Any], Any]] = {}  # Of registered types, by name.
_writers: dict[str, Callable[[Any], Any]] = {}
_registered: dict[str, type] = {}
_makers: dict[type, tuple[tuple[str, ...], Callable[[Sequence[Any]], Any]]] = {}


def class_name(cls: type) -> str:
    """The name of a class in encoded data."""
    return f"{cls.__module__}:{cls.__qualname__}"


def register(cls: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T], name: str | None = None) -> None:
    """Register a codec for a class, for exchange, logs and checkpoints.

    Args:
        encode: gives a value that is carried (a tuple of numbers and text, say).
        decode: makes the object again from what `encode` gave.
        name: what it is called in stores; `module:qualname` by default. Keep it when the class moves.

    Raises:
        CodecError: if the codec carries `cls` already by itself, or another class has this name.

    >>> from dataclasses import dataclass
    >>> class Point:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> falkirk.register(Point, encode=lambda p: (p.x, p.y), decode=lambda pair: Point(*pair), name="point")
    """
    name = name or class_name(cls)
    if cls in records.BUILT_IN:
        raise CodecError(f"{class_name(cls)} is carried already; a wrapper class can be registered instead")
    other = _registered.get(name)
    if other is not None and other is not cls and class_name(other) != class_name(cls):
        raise CodecError(f"{class_name(other)} is registered as {name!r}; give {class_name(cls)} another name=")
    _registered[name] = cls
    _readers[name] = decode
    _writers[name] = encode

    def pack(writer: ColumnWriter, values: Sequence[Any]) -> Column:
        return [REGISTERED, name, writer.column(_by(encode, values, f"the encode of {name!r}"))]

    set_packer(cls, pack)


def registered_in(module: str) -> list[tuple[Any, ...]]:
    """Arguments of all `register` calls so far for the classes of one module.

    For processes that cannot import that module.
    """
    return [
        (cls, _writers[name], _readers[name], name) for name, cls in _registered.items() if cls.__module__ == module
    ]


def carry(cls: type[T]) -> type[T]:
    """Make a class known to the codec by its name.

    A decorator for classes made inside functions, or in a notebook's own process.

    A class at the top of a module needs nothing: it is found by import. One that lives elsewhere is found
    once this process has written a value of it, or has seen this decorator.

    Raises:
        CodecError: if it is no dataclass, NamedTuple, Struct or enum.
    """
    packer_of_class(cls)
    return cls


def packer_of_class(cls: type) -> Pack:
    """The packer of a class met for the first time.

    Raises:
        CodecError: if it is of no kind that is carried.
    """
    name = class_name(cls)
    if issubclass(cls, Flag):
        pack: Pack = lambda writer, values: [FLAG, name, writer.column([value.value for value in values])]  # noqa: E731
    elif issubclass(cls, Enum):
        pack = lambda _, values: [ENUM, name, [value.name for value in values]]  # noqa: E731
    else:
        fields, _ = maker_of(cls)
        pack = _object_packer(cls, name, fields)
    _classes[name] = cls
    return pack


def _object_packer(cls: type, name: str, fields: tuple[str, ...]) -> Pack:
    width = len(fields)
    if issubclass(cls, tuple):
        return lambda writer, values: [OBJECT, name, list(fields), writer.rows(values, width)]
    if width == 0:
        return lambda writer, values: [OBJECT, name, [], writer.rows([()] * len(values), 0)]
    if width == 1:
        only = attrgetter(fields[0])
        return lambda w, values: [OBJECT, name, list(fields), w.rows([(only(value),) for value in values], 1)]
    get = attrgetter(*fields)
    return lambda writer, values: [OBJECT, name, list(fields), writer.rows([get(value) for value in values], width)]


def maker_of(cls: type) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], Any]]:
    """The fields of a class, and a function that makes an object from their values.

    Raises:
        CodecError: if it is no dataclass, NamedTuple or Struct.
    """
    found = _makers.get(cls)
    if found is None:
        found = _makers[cls] = _maker(cls)
    return found


def _maker(cls: type) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], Any]]:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__, _struct_maker(cls)
    # A `namedtuple` that came with a program has room for attributes, though it says that it has none.
    plain = not cls.__dictoffset__ or cls.__dict__.get("__slots__") == ()
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and plain:
        return cls._fields, lambda values: tuple.__new__(cls, values)
    if "__dataclass_fields__" in cls.__dict__ and cls.__new__ is object.__new__:
        names = tuple(field.name for field in dataclasses.fields(cast(Any, cls)))
        return names, _dataclass_maker(cls, names)
    raise CodecError(f"values of type {_of(cls)} are not carried; {_advice(cls)}")


def _struct_maker(cls: type[msgspec.Struct]) -> Callable[[Sequence[Any]], Any]:
    names = cls.__struct_fields__
    again = hasattr(cls, "__post_init__")

    def make(values: Sequence[Any]) -> Any:
        made = cls(**dict(zip(names, values)))
        if again:  # It may have changed what it was given; the value carried had been through it already.
            for name, value in zip(names, values):
                msgspec.structs.force_setattr(made, name, value)
        return made

    return make


def _dataclass_maker(cls: type, names: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    new, fill = object.__new__, object.__setattr__
    if cls.__dictoffset__ and not any("__slots__" in base.__dict__ for base in cls.__mro__[:-1]):

        def make_open(values: Sequence[Any]) -> Any:
            made: Any = new(cls)
            made.__dict__.update(zip(names, values))
            return made

        return make_open

    def make(values: Sequence[Any]) -> Any:
        made: Any = new(cls)
        for name, value in zip(names, values):
            fill(made, name, value)
        return made

    return make


def _of(cls: type) -> str:
    return class_name(cls).removeprefix("builtins:").replace(":", ".")


def _advice(cls: type) -> str:
    if dataclasses.is_dataclass(cls) and "__dataclass_fields__" not in cls.__dict__:
        return "it only inherits from a dataclass: decorate it with @dataclass too"
    for base in (str, int, float, bytes, tuple, list, dict, set, frozenset):
        if issubclass(cls, base):
            return (
                f"it is a subclass of {base.__name__}: convert it to a plain {base.__name__} first, "
                "or register it with falkirk.register(cls, encode, decode)"
            )
    if callable(cls) and cls.__module__ in ("builtins", "functools", "types"):
        return "send data, not code or open resources, from one operator to the next"
    return "make it a dataclass, or register it with falkirk.register(cls, encode, decode)"


def _printable(name: str) -> str:
    return repr(name[:200])[1:-1]


def find_class(name: Any) -> type:
    """Look up a class by its encoded name.

    Raises:
        CodecError: if there is none, or it is not of a kind that is carried.
    """
    if type(name) is not str:
        raise CodecError("damaged value: a class without a name")
    cls = _classes.get(name)
    if cls is None:
        cls = _imported(name) or _loaded(name)
        if cls is None:
            raise CodecError(
                f"class {_printable(name)} is not known in this process; move it to the top of a module that the "
                "program imports at its own top, or decorate it with timely.data.codec.carry"
            )
        if not issubclass(cls, Enum):
            maker_of(cls)
        _classes[name] = cls
    return cls


def _imported(name: str) -> type | None:
    """Class at its import address, if its module is loaded already.

    Uses `__dict__` only: `getattr` may import.
    """
    module_name, _, path = name.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in path.split("."):
        if not isinstance(found, ModuleType | type):
            return None
        found = object.__getattribute__(found, "__dict__").get(part)
    return found if isinstance(found, type) and class_name(found) == name else None


def _loaded(name: str) -> type | None:
    """Loaded class without an import address: local, or sent with the program."""
    seen: set[type] = set()
    fresh: list[type] = [object]
    found: list[type] = []
    while fresh:
        cls = fresh.pop()
        children: list[type] = type.__subclasses__(cls)
        for child in children:
            if child not in seen:
                seen.add(child)
                fresh.append(child)
                if class_name(child) == name and _carried_kind(child):
                    found.append(child)
    if len(found) > 1:
        raise CodecError(
            f"there are {len(found)} classes called {name} in this process; move it to the top of a module, "
            "or decorate the right one with timely.data.codec.carry"
        )
    return found[0] if found else None


def _carried_kind(cls: type) -> bool:
    if issubclass(cls, Enum):
        return True
    try:
        maker_of(cls)
    except CodecError:
        return False
    return True


def _read_objects(column: Column) -> list[Any]:
    _, name, fields, rows = column
    cls = find_class(name)
    known, make = maker_of(cls)
    if list(known) != fields or rows[0] != len(known):
        raise CodecError(
            f"{name} was written with the fields {fields} and now has {list(known)}; "
            "read this store with the program that wrote it, or register the class with a decode for both"
        )
    return [make(row) for row in read_rows(rows)]


def _enum(name: str) -> type[Enum]:
    cls = find_class(name)
    if not issubclass(cls, Enum):
        raise CodecError(f"{name} was an enum when it was written, and is none now")
    return cls


def _read_enums(column: Column) -> list[Any]:
    members = _enum(column[1]).__members__
    try:
        return [members[name] for name in column[2]]
    except KeyError as error:
        raise CodecError(f"{column[1]} has no member {error.args[0]} any more") from None


def _read_flags(column: Column) -> list[Any]:
    flag = _enum(column[1])
    return [flag(value) for value in read(column[2])]


def _read_registered(column: Column) -> list[Any]:
    decode = _readers.get(column[1])
    if decode is None:
        raise CodecError(
            f"type {column[1]} is not registered in this process; call falkirk.register where the program is built"
        )
    return _by(decode, read(column[2]), f"the decode of {column[1]!r}")


def _by(function: Callable[[Any], Any], values: Sequence[Any], what: str) -> list[Any]:
    """Apply a registered function to the values; its errors become CodecErrors."""
    try:
        return [function(value) for value in values]
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"{what}, which falkirk.register was given, failed: {error_text(error)}") from error


understands(OBJECT, _read_objects)
understands(ENUM, _read_enums)
understands(FLAG, _read_flags)
understands(REGISTERED, _read_registered)
records.class_packer.append(packer_of_class)
