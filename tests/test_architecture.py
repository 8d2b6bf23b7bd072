"""The shape of the source tree: who imports whom, and what the pure core may not touch.

Everything is read from the syntax trees: nothing is imported, and a file that cannot run yet is checked too.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import networkx as nx

from timely.errors import PACKAGES

ROOT = Path(__file__).resolve().parents[1]

# ----------------------------------------------------------------------------------------------------------
# The house. A module may import from its own floor and from the floors below it.

# The rooms of each house, lowest first: a folder or a file of it imports from its own room and from rooms below.
ROOMS = {
    "timely": [
        "errors",
        "story seen_functions preloaded",
        "time",
        "data",
        "io",
        "state",
        "operators",
        "progress",
        "dataflow",
        "worker",
    ],
    "recovery": [
        *(
            "errors reachability place",
            "policy",
            "guarantees",
            "metadata",
            "store",
            "loops layout",
            "epoch_ends incomplete",
            "protocol",
            "memory",
        ),
        *("checkpoint", "fixed_point", "rollback", "agent", "moving"),
    ],
    "monitor": ["coordination explain", "history", "web"],
    "runtime": [
        *("folders links imports host_limits", "control"),
        "program",
        *("sources", "session", "recovery", "page", "processes", "supervisor"),
        "run hosts",
    ],
    "libraries": [
        "connect columns",
        "differential sql",
        "graph lindi spark",
    ],
    "libraries.columns": [
        "kernels",
        "agg",
        "state",
        "operators",
        "schemas",
        "verbs",
        "warm",
    ],
    "libraries.connect": [
        "claim validation lines sqlite_values",
        "files tables",
        "sockets sqlite",
    ],
    "libraries.spark": [
        "errors",
        "files versions",
        "table_reader data_source",
        "protocol",
        "setup",
        "daemon",
        "client",
        "host",
        "dataflow",
        "cluster",
        "engine",
    ],
}

# The deterministic core: fed with events, returns effects. Whatever it needs from outside is handed to it.
PURE = ["timely", "recovery", "monitor.coordination", "monitor.explain", "monitor.history", "libraries.columns"]
# Sources and sinks, and the disk: the runtime calls them.
NOT_PURE = ["timely.io", *(f"recovery.store.{each}" for each in ("local", "address", "objects", "lease"))]
IMPURE_MODULES = {
    *("time", "random", "secrets", "numpy.random", "tempfile", "socket", "ssl", "select", "selectors", "zmq"),
    *("signal", "subprocess", "threading", "_thread", "multiprocessing", "concurrent", "asyncio", "queue"),
}
IMPURE_CALLS = re.compile(
    r"(open|input|(uuid\.)?uuid[14]|datetime\.(now|utcnow|today)|date\.today|(np|numpy)\.random\..*)"
)

# Code from elsewhere may run only where a program is handed to a process that we started ourselves.
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "shelve", "marshal", "joblib", "cloudpickle"}
CLOUDPICKLE_ALLOWED = ["runtime.*", "libraries.spark.*"]

# Names of import that differ from the name of the distribution in pyproject.toml.
DISTRIBUTIONS = {"grpc": "grpcio", "zmq": "pyzmq", "prometheus_client": "prometheus-client"}


# ----------------------------------------------------------------------------------------------------------
# Reading the tree


def ignored(path: Path) -> bool:
    """True if .gitignore (names, `*.suffix`, `folder/`, `a/path/`; nothing cleverer) leaves `path` out."""
    relative = path.relative_to(ROOT)
    for line in (ROOT / ".gitignore").read_text().splitlines():
        pattern = line.strip().strip("/")
        if not pattern or pattern.startswith("#"):
            continue
        prefixes = [relative, *relative.parents]
        if any(fnmatch(str(each) if "/" in pattern else each.name, pattern) for each in prefixes):
            return True
    return False


@cache
def files() -> list[Path]:
    """Every file that is tracked or not ignored; found without git, as in an unpacked archive."""
    found: list[Path] = []
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.name == ".git" or ignored(path):
                continue
            if path.is_dir():
                folders.append(path)
            else:
                found.append(path)
    return found


@dataclass(frozen=True, slots=True)
class Module:
    """One source file of the packages."""

    name: str
    path: Path
    tree: ast.Module

    def at(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


@cache
def modules() -> dict[str, Module]:
    found = {}
    for path in files():
        relative = path.relative_to(ROOT)
        if path.suffix == ".py" and relative.parts[0] in PACKAGES:
            name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            found[name] = Module(name, path, ast.parse(path.read_text(), str(relative)))
    return found


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that can run: bodies of `if TYPE_CHECKING:` are for the type checker alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from runtime_nodes(other)
            continue
        yield child
        yield from runtime_nodes(child)


def imports(module: Module, types: bool = False) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute names that a module imports, each as far as it names a module of ours.

    Those in functions count; with `types` those for type checkers, too.
    """
    for node in ast.walk(module.tree) if types else runtime_nodes(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.name.split(".")
                drop = node.level - (module.path.name == "__init__.py")
                base = ".".join([*package[: len(package) - drop], *filter(None, [node.module])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in modules() or base == "numpy" else base, node


def houses_of(name: str) -> list[str]:
    """The houses that a module is in: a room of one may be a house itself."""
    return [house for house in ROOMS if within(name, [house]) and name != house]


def room(house: str, name: str) -> int | None:
    """The floor of a module within a house; None for one outside of it."""
    inside = name.removeprefix(f"{house}.").split(".")[0] if within(name, [house]) else ""
    return next((level for level, names in enumerate(ROOMS[house]) if inside in names.split()), None)


def within(name: str, packages: list[str]) -> bool:
    """True if a module is one of these packages, or inside one."""
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def report(problems: list[str]) -> str:
    return "\n  ".join([f"{len(problems)} found:", *problems])


# ----------------------------------------------------------------------------------------------------------
# The rules


def test_packages_import_downwards_only() -> None:
    problems = []
    for module in modules().values():
        own = PACKAGES.index(module.name.split(".")[0])
        for name, node in imports(module, types=True):
            package = name.split(".")[0]
            if package in PACKAGES and PACKAGES.index(package) > own:
                problems.append(f"{module.at(node)}: {PACKAGES[own]} imports {name}, and {package} lies above it")
            elif package in ("tests", "examples", "bench"):
                problems.append(f"{module.at(node)}: the product imports {name}")
    assert not problems, report(problems)


def test_rooms_import_downwards_only() -> None:
    problems = []
    for module in modules().values():
        for house in houses_of(module.name):
            own = room(house, module.name)
            for name, node in imports(module, types=True):
                other = room(house, name)
                if own is not None and other is not None and other > own:
                    problems.append(
                        f"{module.at(node)}: {module.name} imports {name}: {ROOMS[house][other]} lies above {ROOMS[house][own]}"
                    )
    assert not problems, report(problems)


def test_every_module_has_a_room() -> None:
    problems = [
        f"{module.path.relative_to(ROOT)}: give {module.name} a place in ROOMS"
        for module in modules().values()
        for house in houses_of(module.name)
        if room(house, module.name) is None
    ]
    assert not problems, report(problems)


def test_every_folder_says_what_enters_and_what_leaves() -> None:
    problems = []
    for module in modules().values():
        if module.path.name == "__init__.py" and any(house != "libraries" for house in houses_of(module.name)):
            said = ast.get_docstring(module.tree) or ""
            if "Enters:" not in said or "Leaves:" not in said:
                problems.append(f"{module.path.relative_to(ROOT)}: say in its docstring what enters and what leaves")
    assert not problems, report(problems)


def test_no_modules_import_each_other() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module in modules().values():
        targets = {name for name, _ in imports(module, types=True) if name in modules()}
        graph.add_edges_from((module.name, name) for name in targets if name != module.name)
    circles = [" ".join(sorted(each)) for each in nx.strongly_connected_components(graph) if len(each) > 1]
    problems = [f"a circle, deferred and type-only imports counted: {each}" for each in sorted(circles)]
    assert not problems, report(problems)


def test_pure_core_imports_no_clock_chance_socket_or_thread() -> None:
    problems = []
    for module in modules().values():
        if not within(module.name, PURE) or within(module.name, NOT_PURE):
            continue
        for name, node in imports(module):
            if any(name == each or name.startswith(f"{each}.") for each in IMPURE_MODULES):
                problems.append(f"{module.at(node)}: the pure core imports {name}: do it in a driver, or pass it in")
        for call in runtime_nodes(module.tree):
            if isinstance(call, ast.Call) and IMPURE_CALLS.fullmatch(ast.unparse(call.func)):
                problems.append(f"{module.at(call)}: the pure core calls {ast.unparse(call.func)}")
    assert not problems, report(problems)


def test_stores_are_opened_by_address() -> None:
    problems = []
    own = {
        path for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("examples", "bench")
    }
    own |= {module.path for module in modules().values() if not within(module.name, ["recovery.store"])}
    for path in sorted(own):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if re.search(r"\bLocalStore\b|recovery\.store\.local\b", line):
                problems.append(
                    f"{path.relative_to(ROOT)}:{number}: open it by its StoreAddress: kinds are recovery/store's"
                )
    assert not problems, report(problems)


def test_nothing_unpickles_but_the_runtime_and_spark() -> None:
    problems = []
    for module in modules().values():
        for name, node in imports(module):
            top = name.split(".")[0]
            if top in UNPICKLERS and not (top == "cloudpickle" and matches(module.name, CLOUDPICKLE_ALLOWED)):
                problems.append(f"{module.at(node)}: imports {name}: bytes from a disk or socket use the codec")
    assert not problems, report(problems)


def test_markers_that_are_found_by_identity_stay_themselves_when_they_travel() -> None:
    problems = []
    for module in modules().values():
        for node in module.tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is not None and ast.unparse(value) == "object()":
                problems.append(f"{module.at(node)}: of a function that travels this is a copy: use an Enum")
    assert not problems, report(problems)


def test_every_third_party_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *(each for name in extras if name != "dev" for each in extras[name]),
    ]
    names = {re.split(r"[^\w.-]", each)[0].lower() for each in declared}
    problems = []
    for module in modules().values():
        for name, node in imports(module):
            top = name.split(".")[0]
            if top in PACKAGES or top in sys.stdlib_module_names or top in UNPICKLERS:
                continue
            if DISTRIBUTIONS.get(top, top).lower() not in names:
                problems.append(f"{module.at(node)}: imports {top}: add it to pyproject.toml and run `make lock`")
    assert not problems, report(problems)


def test_public_modules_classes_and_functions_are_documented() -> None:
    problems = []
    for module in modules().values():
        if any(part.startswith("_") for part in module.name.split(".")):
            continue
        if not ast.get_docstring(module.tree):
            problems.append(f"{module.at(module.tree)}: module {module.name} has no docstring")
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name[0] == "_":
                continue
            overload = any(ast.unparse(each).endswith("overload") for each in node.decorator_list)
            if not overload and not ast.get_docstring(node):
                problems.append(f"{module.at(node)}: {node.name} has no docstring")
    assert not problems, report(problems)


def test_no_file_names_a_machine_or_a_registry() -> None:
    # Spelled in pieces, so that this file passes its own test.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js.org", "deb." + "debian.org"]
    folders = ["/" + "work/", "/" + "root/", "/opt/" + "pypi", "/opt/" + "wheels"]
    folders += [f"{each}/" for each in (Path.home(), ROOT) if len(each.parts) > 1]
    forbidden = re.compile(
        "|".join([*map(re.escape, hosts), *(rf"(?<![\w.)}}*-]){re.escape(each)}" for each in folders)])
    )
    problems = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if found := forbidden.search(line):
                problems.append(f"{path.relative_to(ROOT)}:{number}: {found.group()!r}")
    assert not problems, report(problems)
