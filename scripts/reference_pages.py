"""Makes docs/names of the docstrings: the reference as Markdown, to be read where nothing is built.

scripts/reference_pages.py            write the pages
scripts/reference_pages.py --check    say which of them are not current

The pages of docs/reference say which names there are, and in which order; the site shows those with the names filled in.
"""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import falkirk  # noqa: E402

SOURCES = ROOT / "docs" / "reference"
PAGES = ROOT / "docs" / "names"

_DIRECTIVES = re.compile(r"```\{eval-rst\}\n(.*?)```\n", re.DOTALL)
_DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   .*\n)*)", re.MULTILINE)
_INHERITED = re.compile(r":inherited-members: ?(\w*)")
_VARIABLES = {"S_co": "Stream", "K": "Keyed", "Given": "Columns"}
"""Public class for each type variable of the engine."""
_SECTIONS = ("Args:", "Raises:", "Returns:", "Yields:")
_WIDTH = 100
_OF_THE_SITE = """`make docs` builds it.
In the repository the pages in `docs/names` are the same, with the names filled in."""
_MADE_BY_VERBS = runpy.run_path(str(ROOT / "docs" / "conf.py"))["MADE_BY_VERBS"]


def pages() -> dict[Path, str]:
    """Every page by its path."""
    return {PAGES / source.name: _page(source.read_text()) for source in sorted(SOURCES.glob("*.md"))}


def _page(source: str) -> str:
    text = re.sub(r"```\{toctree\}.*?\n\n(.*?)```", lambda found: _contents(found[1]), source, flags=re.DOTALL)
    text = _DIRECTIVES.sub(lambda block: "\n".join(_filled(block[1])), text)
    return text.replace(_OF_THE_SITE, "`scripts/reference_pages.py` makes these pages.").rstrip() + "\n"


def _contents(names: str) -> str:
    titles = {
        name: (SOURCES / f"{name}.md").read_text().partition("\n")[0].removeprefix("# ") for name in names.split()
    }
    return "\n".join(f"- [{title}]({name}.md)" for name, title in titles.items())


def _filled(block: str) -> Iterator[str]:
    """The entries of the directives of a block."""
    for kind, name, options in _DIRECTIVE.findall(block):
        value = named(name)
        yield from _entry(name, value, "###") if kind != "module" else ()
        found = re.search(r":members:(.*(?:\n {6}.*)*)", options)
        if found is not None:
            chosen = found[1].replace("\n", " ").replace(",", " ").split()
            for member in chosen or list(_members(value, kind, _INHERITED.search(options))):
                yield from _entry(f"{name}.{member}", inspect.getattr_static(value, member), "####")


def named(name: str) -> Any:
    """What a public name stands for."""
    found: Any = falkirk
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            found = importlib.import_module(f"{found.__name__}.{part}")
        else:
            found = getattr(found, part)
    return found


def _members(value: Any, kind: str, inherited: re.Match[str] | None) -> Iterator[str]:
    """The public members with docstrings, in the order of the source; `inherited` may name the base where they end."""
    if kind == "module":
        yield from value.__all__
        return
    owners: tuple[type, ...] = (value,) if inherited is None else value.__mro__
    ends = [number for number, owner in enumerate(owners) if inherited and owner.__name__ == inherited[1]]
    for owner in owners[: ends[0]] if ends else owners:
        for name, member in vars(owner).items():
            if (
                not name.startswith("_")
                and owner.__module__ != "builtins"
                and _doc(member)
                and owner in _owners(value, name)
            ):
                yield name


def _owners(value: type, name: str) -> list[type]:
    """The class that a member is of: the first that has it."""
    return [owner for owner in value.__mro__ if name in vars(owner)][:1]


def _function(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def _doc(value: Any) -> str:
    function = _function(value)
    if not (inspect.isroutine(function) or isinstance(function, type)):
        return ""
    return inspect.getdoc(function) or ""


def _entry(name: str, value: Any, level: str) -> Iterator[str]:
    yield f"{level} {name}\n"
    if (signature := _signature(name, value)) is not None:
        yield f"```python\n{signature}\n```\n"
    doc = _doc(value) or ("" if isinstance(value, int | str) else inspect.getdoc(value) or "")
    yield f"{_markdown(doc)}\n"


def _signature(name: str, value: Any) -> str | None:
    function = _function(value)
    if isinstance(value, property) or not callable(function) or getattr(value, "__name__", "") in _MADE_BY_VERBS:
        return None
    try:
        found = inspect.signature(function)
    except ValueError:
        return None
    parameters = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    short = name.removeprefix("falkirk.").rpartition(".")[2]
    text = f"{short}{_without_quotes(str(found.replace(parameters=parameters)))}"
    if len(text) <= _WIDTH:
        return text
    given = ",\n    ".join(_parts(parameters))
    back = "" if found.return_annotation is found.empty else f" -> {_without_quotes(repr(found.return_annotation))}"
    return f"{short}(\n    {given},\n){back}"


def _parts(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred |= each.kind is each.VAR_POSITIONAL
        yield _without_quotes(str(each))


def _without_quotes(text: str) -> str:
    """Annotations, which are texts, as they stand in the source; objects without their addresses."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    for variable, bound in _VARIABLES.items():
        text = re.sub(rf"\b{variable}\b", bound, text)
    text = re.sub(r"\b(Keyed|Windowed|WindowedColumns)\[\w+\]", r"\1", text)
    return re.sub(r"^'(.*)'$", r"\1", re.sub(r"<(?:function|class) '?([\w.<>]+?)'?(?: at 0x\w+)?>", r"\1", text))


def _markdown(doc: str) -> str:
    """A docstring as Markdown: sections as lists, examples as code."""
    out: list[str] = []
    section = example = False
    for line in doc.splitlines():
        if example and not line.strip():
            out.append("```")
            example = False
        elif not example and line.lstrip().startswith(">>> "):
            out.append("```python")
            example = True
        if line in _SECTIONS:
            section = True
            out += [f"*{line.removesuffix(':')}*", ""]
            continue
        if section and line and not line.startswith(" "):
            section = False
        if section and re.match(r" {4}\S", line):
            label, colon, text = line.strip().partition(": ")
            line = f"- `{label}`: {text}" if colon else f"- {line.strip()}"
        elif section and line.startswith("     "):
            line = f"  {line.strip()}"
        out.append(line)
    return "\n".join([*out, "```"] if example else out) + "\n"


def main() -> int:
    """Do what the command line says."""
    made = pages()
    if "--check" in sys.argv:
        odd = [str(path) for path, text in made.items() if not path.exists() or path.read_text() != text]
        sys.stdout.writelines(f"{path} is not current\n" for path in odd)
        return bool(odd)
    PAGES.mkdir(exist_ok=True)
    for path in set(PAGES.glob("*.md")) - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
