"""Measure how clear the code is, and compare it with what we want.

    python scripts/house.py            the table
    python scripts/house.py --list     the table, and every place that is over a limit
    python scripts/house.py --json     the figures as JSON

It ends with status 1 where a figure is worse than wanted.
"""

import argparse
import ast
import asyncio
import inspect
import json
import sys
import threading
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "loom"
MAX_COLUMNS = 100
REQUEST_FUNCTIONS = (
    "context.weaving",
    "context.assemble",
    "context.history",
    "engine.sessions",
    "engine.prepare",
)
# Participles and figures of speech that say neither what is done nor what a thing is.
VAGUE_WORDS = frozenset(
    """back begun beside both bound bought bears brought built called caught chosen come done drawn
    each ends fed few found given goes gone grew grown hangs held hidden hung kept knows known laid
    least left lent less longest lost made many meant met more most newest one once other paid said
    same seen sent short shown shut some sooner spent spoken stands stood such sunk taken taught
    than that there these this those thought told torn understood whole within worn woven
    written""".split()  # noqa: SIM905
)
# values of the domain, and an error
EXCUSED_NAMES = frozenset({"Carried", "Diverged", "Thought", "Unfinished", "embed", "ends"})


class Place(NamedTuple):
    """Where something is, and how much of it there is."""

    where: str
    amount: float


class Figure(NamedTuple):
    """One row of the table."""

    name: str
    measured: float
    wanted: float
    places: list[Place]

    @property
    def is_met(self) -> bool:
        return self.measured <= self.wanted


class Function(NamedTuple):
    where: str
    name: str
    complexity: int
    parameters: int


AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.Assert,
    ast.match_case,
)


def count_branches(node: ast.AST) -> int:
    """Branches, loops, handlers, comprehensions, conditional expressions, asserts, cases and
    boolean operators inside.
    """
    found = 0
    for each in ast.walk(node):
        if isinstance(each, BRANCHES):
            found += 1
        elif isinstance(each, ast.BoolOp):
            found += len(each.values) - 1
    return found


def count_parameters(node: AnyFunction) -> int:
    """How many parameters a caller can give; the object of a method is not one."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return (
        sum(each.arg not in ("self", "cls") for each in given)
        + bool(node.args.vararg)
        + bool(node.args.kwarg)
    )


def is_vague(name: str) -> bool:
    """Whether a name is one word that is a participle or a figure of speech."""
    if name in EXCUSED_NAMES:
        return False
    word = name.strip("_").lower()
    if "_" in word or (
        name.strip("_") != word and any(letter.isupper() for letter in name.strip("_")[1:])
    ):
        return False
    return word in VAGUE_WORDS or (word.endswith("ed") and len(word) > 4)


def read_modules() -> dict[str, ast.Module]:
    """Every module of the package, by its name below `loom`."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def find_functions(modules: dict[str, ast.Module]) -> list[Function]:
    """Every function and method. What is defined inside a function counts as part of it."""
    found: list[Function] = []

    def visit(node: ast.AST, where: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{where}.{child.name}"
                found.append(
                    Function(place, child.name, count_branches(child), count_parameters(child))
                )
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{where}.{child.name}")
            elif not isinstance(child, ast.expr):
                visit(child, where)

    for name, tree in modules.items():
        visit(tree, name)
    return found


def find_classes(modules: dict[str, ast.Module]) -> list[tuple[str, str]]:
    """Every class of a module: where, and its name."""
    return [
        (f"{name}.{node.name}", node.name)
        for name, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]


def find_conditionals(modules: dict[str, ast.Module]) -> tuple[list[Place], list[Place]]:
    """Every conditional expression, and those that hold another."""
    every, nested = [], []
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.IfExp):
                continue
            every.append(Place(f"{name}:{node.lineno}", 1))
            inside = [child for child in ast.walk(node) if isinstance(child, ast.IfExp)]
            if len(inside) > 1:
                nested.append(Place(f"{name}:{node.lineno}", len(inside)))
    return every, nested


def measure_lines() -> tuple[int, list[Place]]:
    """How many lines there are, and those that are too long."""
    total, long = 0, []
    for path in sorted(SOURCE.rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            total += 1
            if len(line) > MAX_COLUMNS:
                long.append(Place(f"{path.relative_to(SOURCE)}:{number}", len(line)))
    return total, long


def find_border_names(modules: dict[str, ast.Module], room: str) -> list[Place]:
    """The names that other rooms import from this one, and how many modules import each."""
    found: Counter[str] = Counter()
    for name, tree in modules.items():
        if name.split(".")[0] == room or name == "":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"loom.{room}"):
                found.update(alias.name for alias in node.names)
    return [Place(name, times) for name, times in sorted(found.items())]


def _classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        yield hint
    for inner in typing.get_args(hint):
        yield from _classes_in(inner)


def _hints_of(value: Any) -> Iterator[Any]:
    """The types that a caller of a public name meets."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if inspect.isclass(value):
        yield from typing.get_type_hints(value).values()
        for name, member in vars(value).items():
            if not name.startswith("_") and isinstance(
                member, Callable | property | classmethod | staticmethod
            ):  # type: ignore[arg-type]
                yield from _hints_of(member) if not inspect.isclass(member) else ()
    elif inspect.isfunction(value):
        yield from typing.get_type_hints(value).values()


def find_private_types() -> list[Place]:
    """The classes of Loom in signatures of public names that are not public themselves."""
    import loom
    import loom.types

    exported = [getattr(loom, name) for name in loom.__all__]
    exported += [getattr(loom.types, name) for name in loom.types.__all__]
    public = {each for each in exported if inspect.isclass(each)}
    found: Counter[str] = Counter()
    for value in exported:
        for hint in _hints_of(value):
            for each in _classes_in(hint):
                if each.__module__.startswith("loom") and each not in public:
                    found[f"{each.__module__}.{each.__qualname__}"] += 1
    return [Place(name, times) for name, times in sorted(found.items())]


def follow_first_request() -> tuple[list[Place], list[Place]]:
    """The modules and the functions that a first `prepare` of a session passes."""
    from loom import Loom

    passed: set[tuple[str, str]] = set()

    def note(frame: types.FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        code = frame.f_code
        if event == "call" and module.startswith("loom.") and not code.co_name.startswith("<"):
            passed.add((module, code.co_qualname))

    async def ask() -> None:
        loom = Loom.open(":memory:")
        session = loom.new()
        session.append({"role": "user", "content": "Say what this project does, in a sentence."})
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            await session.prepare(model="gpt-4o", window=8_000)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        loom.close()

    asyncio.run(ask())
    modules = Counter(module for module, _ in passed)
    functions = [Place(f"{module}.{name}", 1) for module, name in sorted(passed)]
    return [Place(name, times) for name, times in sorted(modules.items())], functions


def measure() -> list[Figure]:
    """Every figure of the table."""
    modules = read_modules()
    functions = find_functions(modules)
    classes = find_classes(modules)
    by_size = sorted(functions, key=lambda each: -each.complexity)
    over_10 = [Place(each.where, each.complexity) for each in by_size if each.complexity > 10]
    over_20 = [place for place in over_10 if place.amount > 20]
    request = [place for place in over_10 if place.where.startswith(REQUEST_FUNCTIONS)]
    crowded = sorted(
        (Place(each.where, each.parameters) for each in functions), key=lambda place: -place.amount
    )
    conditionals, nested = find_conditionals(modules)
    lines, long_lines = measure_lines()
    vague = [Place(each.where, 1) for each in functions if is_vague(each.name)]
    vague += [Place(where, 1) for where, name in classes if is_vague(name)]
    times = Counter(name for _, name in classes)
    twice = [Place(where, times[name]) for where, name in classes if times[name] > 1]
    context, stores = find_border_names(modules, "context"), find_border_names(modules, "stores")
    passed_modules, passed_functions = follow_first_request()
    private = find_private_types()
    worst = max([place.amount for place in request], default=0)
    return [
        Figure("complexity of the functions that make a request, most", worst, 15, request),
        Figure("functions over 10, %", 100 * len(over_10) / len(functions), 6, over_10),
        Figure("functions over 20", len(over_20), 0, over_20),
        Figure(
            "parameters, most",
            crowded[0].amount,
            7,
            [place for place in crowded if place.amount > 7],
        ),
        Figure("conditional expressions per 1,000 lines", 1000 * len(conditionals) / lines, 15, []),
        Figure("nested conditional expressions", len(nested), 0, nested),
        Figure(
            f"lines over {MAX_COLUMNS} columns, %", 100 * len(long_lines) / lines, 0, long_lines
        ),
        Figure("modules that a first prepare passes", len(passed_modules), 30, passed_modules),
        Figure(
            "functions that a first prepare passes", len(passed_functions), 180, passed_functions
        ),
        Figure("names that other rooms import from context", len(context), 25, context),
        Figure("names that other rooms import from stores", len(stores), 20, stores),
        Figure("types in public signatures that are not public", len(private), 0, private),
        Figure("functions and classes with a vague name", len(vague), 0, vague),
        Figure(
            "class names used twice", len({p.where.rpartition(".")[2] for p in twice}), 0, twice
        ),
    ]


def print_table(figures: list[Figure], with_places: bool) -> None:
    width = max(len(figure.name) for figure in figures)
    print(f"{'':<{width}}  measured  wanted")
    for figure in figures:
        mark = "" if figure.is_met else "  not met"
        print(f"{figure.name:<{width}}  {figure.measured:>8.4g}  {figure.wanted:>6.4g}{mark}")
        if with_places and not figure.is_met:
            for place in figure.places:
                print(f"    {place.amount:>4.4g}  {place.where}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how clear the code is.")
    parser.add_argument(
        "--list", action="store_true", help="print every place that is over a limit"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    figures = measure()
    if options.json:
        print(
            json.dumps(
                {
                    figure.name: {"measured": figure.measured, "wanted": figure.wanted}
                    for figure in figures
                }
            )
        )
    else:
        print_table(figures, options.list)
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
