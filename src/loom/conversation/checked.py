"""Values that check themselves: what could not be read back cannot be made.

A type says by its annotations what its fields hold. Where a field holds something else, the error
names the field, what was found and what is right; of a misspelt name it also says the nearest.
Lists become tuples, and a name may be written in camel case. Functions say by their annotations
what they take (`checks_arguments`), and refuse anything else in the same way. Where a verb has many
options, a `TypedDict` names them (`show_options`, `refuse_unknown`).
"""

import re
import typing
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, signature
from itertools import chain
from math import isfinite
from types import NoneType, UnionType
from typing import Any, NoReturn, ParamSpec, Self, TypeVar

from msgspec import Struct, inspect, structs

from loom.errors import ChoiceError, UnknownOption, describe, shorten

MAX_NUMBER = 2**63 - 1  # what both databases and JSON can hold
_SHOWN_CHOICES = 12
_Name = TypeVar("_Name", bound=str)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_LISTS = (Iterable, Sequence, Collection, list)
_HUMP = re.compile("(?<=[a-z0-9])[A-Z]")


class CheckedStruct(Struct, frozen=True):
    """A value whose fields are what their annotations say, or it is not made."""

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, given: "Self | Mapping[str, Any]") -> Self:
        """The value itself, or one made from a mapping; its names may be written in camel case."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ChoiceError(
                f"expected {cls.__name__} or a mapping with its fields, found {describe(given)}"
            )
        names = cls.__struct_fields__
        fields = {
            choose(f"a field of {cls.__name__}", name, names): value
            for name, value in given.items()
        }
        missing = [
            field.name
            for field in structs.fields(cls)
            if field.required and field.name not in fields
        ]
        if missing:
            raise ChoiceError(
                f"{cls.__name__} needs {', '.join(missing)}, found {describe(dict(given))}"
            )
        return cls(**fields)


class Misfit(Exception):
    """A value is not what an annotation says."""

    def __init__(self, expected: str, found: object, place: str = "") -> None:
        self.expected, self.found, self.place = expected, found, place


def check_fields(value: Struct) -> None:
    """Check every field of a value by its annotation; what only needs another form gets it."""
    for name, info, plain, choices in _fields(type(value)):
        found = getattr(value, name)
        # Most fields are as they should be, and a store makes many values at once.
        if type(found) is plain and (choices is None or found in choices):
            continue
        try:
            fitting = _fit(found, info)
        except Misfit as misfit:
            _refuse(f"{type(value).__name__}.{name}{misfit.place}", misfit)
        if fitting is not found:
            structs.force_setattr(value, name, fitting)


def choose(what: str, given: object, choices: tuple[_Name, ...]) -> _Name:
    """The choice that is meant, also where it is written in camel case or with dashes; else an
    error with the nearest.
    """
    try:
        return choices[choices.index(_choice(given, choices))]
    except Misfit as misfit:
        _refuse(what, misfit)


def checks_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which now refuses arguments that are not what its annotations say before it
    does anything.
    """
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature(function).parameters
    names = tuple(name for name, each in parameters.items() if each.kind in by_place)
    takes_more = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters.values())

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if len(args) > len(names) and not takes_more:
            _refuse_places(function, names, len(args))
        hints = _hints(function)
        for name, value in chain(zip(names, args, strict=False), kwargs.items()):
            if name in hints and not _takes(hints[name], value):
                raise ChoiceError(
                    f"{name} must be {_describe_hint(hints[name])}, found {describe(value)}"
                )
        return function(*args, **kwargs)

    return checked


def _refuse_places(function: Callable[..., Any], names: Sequence[str], given: int) -> NoReturn:
    """Refuse values without a name that a function has no place for."""
    own = [name for name in names if name not in ("self", "cls")]
    count = given - (len(names) - len(own))
    raise UnknownOption(
        f"{function.__name__} takes {', '.join(own) or 'nothing'} without a name, found {count} "
        "values; give the others by name"
    )


def show_options(function: _Function) -> _Function:
    """The function, whose signature names each of its `**options`, for `help` and notebooks."""
    found = signature(function)
    shown = [each for each in found.parameters.values() if each.kind is not each.VAR_KEYWORD]
    shown += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=hint)
        for name, hint in typing.get_type_hints(options_of(function)).items()
    ]
    function.__signature__ = found.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def options_of(function: Callable[..., Any]) -> type:
    """The `TypedDict` that names the options of a function."""
    [kind] = typing.get_args(function.__annotations__["options"])
    return typing.cast("type", kind)


def refuse_unknown(verb: str, given: Iterable[str], options: type) -> None:
    """Refuse names that are no options of a verb; a `TypedDict` has those that are."""
    known = options.__annotations__
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UnknownOption(
            f"{verb} has no option {shorten(unknown[0])!r}; its options are {', '.join(known)}"
        )


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(function)
    for name, each in signature(function).parameters.items():  # with what `show_options` added
        if each.annotation is not each.empty:
            hints.setdefault(name, each.annotation)
    return {name: hint for name, hint in hints.items() if name != "return"}


def _takes(hint: Any, value: Any) -> bool:
    """Whether a value is what an annotation of a parameter says."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return any(_takes(each, value) for each in inner)
    if kind in _LISTS:
        return _takes_list(kind, inner, value)
    if kind is tuple and inner and inner[-1] is not ...:
        return _takes_tuple(inner, value)
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, type) and all(
            callable(getattr(value, name, None)) for name in _verbs_of(kind)
        )
    takes = _TAKES.get(kind)
    if takes is not None:
        return takes(inner, value)
    if isinstance(kind, type) and kind is not Any:
        return isinstance(value, kind)
    return True


def _takes_whole_number(_: tuple[Any, ...], value: Any) -> bool:
    return type(value) is int and -MAX_NUMBER <= value <= MAX_NUMBER


def _takes_number(_: tuple[Any, ...], value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _takes_mapping(inner: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(_takes(inner[0], key) and _takes(inner[1], each) for key, each in value.items())


_TAKES: dict[Any, Callable[[tuple[Any, ...], Any], bool]] = {
    int: _takes_whole_number,
    float: _takes_number,
    Mapping: _takes_mapping,
    Callable: lambda _, value: callable(value),
}


def _takes_tuple(inner: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, tuple) or len(value) != len(inner):
        return False
    return all(_takes(each, part) for each, part in zip(inner, value, strict=True))


def _takes_list(kind: Any, inner: tuple[Any, ...], value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, kind):
        return False
    if not isinstance(value, list | tuple) or not inner:  # a generator would be used up by a look
        return True
    # Histories are long and of few types, so one of each type is looked at.
    return all(
        _takes(inner[0], each) for each in dict(zip(map(type, value), value, strict=True)).values()
    )


def _verbs_of(protocol: type) -> list[str]:
    return [
        name
        for name, value in vars(protocol).items()
        if not name.startswith("_") and callable(value)
    ]


def _describe_hint(hint: Any) -> str:
    """What an annotation says, in words."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return " or ".join(
            dict.fromkeys(_describe_hint(each) for each in inner if each is not NoneType)
        )
    if kind is tuple and inner:
        return f"({', '.join(_describe_hint(each) for each in inner)})"
    if kind in _LISTS:
        if inner:
            return f"a list in which each is {_describe_hint(inner[0])}"
        return "a list"
    if getattr(kind, "_is_protocol", False):
        return f"an object with {' and '.join(_verbs_of(kind))}"
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(name) or _name_with_article(name)


_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "Callable": "a function",
    "Mapping": "a mapping",
    "PathLike": "a path",
}


def is_one_slip(given: str, name: str) -> bool:
    """Whether one letter is wrong, missing or too many, or two neighbours changed places."""
    same = next(
        (n for n, (a, b) in enumerate(zip(given, name, strict=False)) if a != b),
        min(len(given), len(name)),
    )
    given, name = given[same:], name[same:]
    while given and name and given[-1] == name[-1]:
        given, name = given[:-1], name[:-1]
    return max(len(given), len(name)) <= 1 or (len(given) == 2 and given == name[::-1])


def to_snake_case(name: str) -> str:
    """`truncateMiddle` and `truncate-middle` as `truncate_middle`."""
    return _HUMP.sub(lambda letter: f"_{letter[0]}", name).lower().replace("-", "_")


def check_number(what: str, given: object, least: int = 0) -> int:
    """A whole number from `least` on that a store can hold."""
    if type(given) is not int or not least <= given <= MAX_NUMBER:
        raise ChoiceError(
            f"{what} must be a whole number of at least {least:,}, found {describe(given)}"
        )
    return given


def check_text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise ChoiceError(f"{what} must be a text, found {describe(given)}")
    return _plain_text(given)


def check_flag(what: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise ChoiceError(f"{what} must be true or false, found {describe(given)}")
    return given


_Field = tuple[str, inspect.Type, type | None, Container[Any] | None]


@cache
def _fields(kind: type[Struct]) -> tuple[_Field, ...]:
    """The fields of a value: the name, the annotation, the type of what needs no other check, and
    the choices that there are for it.
    """
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return tuple((field.name, field.type, *_find_plain(field.type)) for field in info.fields)


def _find_plain(info: inspect.Type) -> tuple[type | None, Container[Any] | None]:
    match info:
        case inspect.IntType():
            return int, range(*_find_bounds(info))
        case inspect.VarTupleType():
            return tuple, ((),)
        case inspect.DictType():
            return dict, ({},)
        case inspect.UnionType((other, inspect.NoneType()) | (inspect.NoneType(), other)):
            return _find_plain(other)
        case inspect.StrType():
            return str, None
        case inspect.BoolType():
            return bool, None
        case inspect.LiteralType(choices) if all(type(choice) is str for choice in choices):
            return str, frozenset(choices)
    return None, None


def _refuse(place: str, misfit: Misfit) -> NoReturn:
    raise ChoiceError(
        f"{place}: expected {misfit.expected}, found {describe(misfit.found)}"
    ) from None


def _fit(value: Any, info: inspect.Type) -> Any:  # noqa: C901
    """The value as the annotation has it."""
    match info:
        case inspect.StrType():
            if not isinstance(value, str):
                raise Misfit("a text", value)
            return _plain_text(value)
        case inspect.LiteralType(choices):
            return _choice(value, choices)
        case inspect.BoolType():
            if not isinstance(value, bool):
                raise Misfit("true or false", value)
            return value
        case inspect.IntType():
            return _whole_number(value, info)
        case inspect.FloatType():
            return _number(value)
        case inspect.VarTupleType(item):
            return _tuple(value, item)
        case inspect.DictType():
            return _mapping(value)
        case inspect.UnionType(kinds):
            return _any_of(value, kinds)
        case inspect.StructType(kind):
            if isinstance(value, Mapping) and issubclass(kind, CheckedStruct):
                return kind.of(value)
            if not isinstance(value, kind):
                raise Misfit(_name_with_article(kind.__name__), value)
            return value
    raise TypeError(f"fields of the kind {type(info).__name__} cannot be checked")


def _plain_text(value: str) -> str:
    """A text that is no more than one: members of enumerations and the like compare equal and hash
    differently.
    """
    if type(value) is str:
        return value
    return str.__getitem__(value, slice(None))


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    if isinstance(value, str):
        for spelling in (_plain_text(value), to_snake_case(value)):
            if spelling in choices:
                return spelling
    expected = f"one of {', '.join(map(str, choices[:_SHOWN_CHOICES]))}"
    if isinstance(value, str):
        near = get_close_matches(to_snake_case(shorten(value)), choices, 1, 0.5)
    else:
        near = []
    raise Misfit(f"{expected} (the nearest is {near[0]})" if near else expected, value)


def _find_bounds(info: inspect.IntType) -> tuple[int, int]:
    """The least whole number that a field takes, and the first above those that it takes."""
    least = -MAX_NUMBER if info.ge is None else info.ge
    most = MAX_NUMBER if info.le is None else info.le
    return least, most + 1


def _whole_number(value: Any, info: inspect.IntType) -> int:
    least, stop = _find_bounds(info)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < stop:
        most = stop - 1
        bounds = f" from {least:,} on" if info.ge is not None else ""
        raise Misfit(f"a whole number{bounds} of at most {most:,}", value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, float):
        holds = isfinite(value)
    else:
        holds = type(value) is int and -MAX_NUMBER <= value <= MAX_NUMBER
    if not holds:
        raise Misfit("a finite number", value)
    return float(value)


def _tuple(value: Any, item: inspect.Type) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise Misfit("a tuple", value)
    made = []
    for n, each in enumerate(value):
        try:
            made.append(_fit(each, item))
        except Misfit as misfit:
            raise Misfit(misfit.expected, misfit.found, f"[{n}]{misfit.place}") from None
    if type(value) is tuple and all(a is b for a, b in zip(made, value, strict=True)):
        return value
    return tuple(made)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise Misfit("a mapping whose names are texts", value)
    return value if type(value) is dict else dict(value)


def _any_of(value: Any, kinds: tuple[inspect.Type, ...]) -> Any:
    if value is None and any(isinstance(kind, inspect.NoneType) for kind in kinds):
        return None
    others = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
    if len(others) == 1:
        return _fit(value, others[0])
    types = tuple(kind.cls for kind in others if isinstance(kind, inspect.StructType))
    if not isinstance(value, types):
        raise Misfit(f"one of {', '.join(kind.__name__ for kind in types)}", value)
    return value


def _name_with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
