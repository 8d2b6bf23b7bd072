"""Files of the page: read once, compressed, scripts as one.

A request costs both sides some milliseconds, and a browser makes six at a time. So index.html names one script, put together
of main.js and all modules it imports, and one style sheet. Their addresses have a digest of the content; browsers keep them.
The modules themselves are there too, as they are written.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("page")
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_IMPORT = re.compile(r'^import \{ ([\w$, ]+) \} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function |class |const )([\w$]+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_LINK = re.compile(r'\n *<link rel="stylesheet" href="page/(\w+\.css)" />')
_SCRIPT = '<script type="module" src="page/main.js">'
_LEAST_PACKED = 1024


@dataclass(frozen=True, slots=True)
class Asset:
    """File for browsers.

    `packed` by gzip where that is shorter; `kept` for good under its name.
    """

    content: bytes
    type: str
    packed: bytes | None = None
    kept: bool = False


@cache
def asset(name: str) -> Asset | None:
    """File with this name in addresses; None: there is none."""
    index, made = _page()
    if name == "index.html":
        return _asset(index.encode(), ".html")
    if name in made:
        return _asset(made[name].encode(), Path(name).suffix, kept=True)
    path = FOLDER / name
    if Path(name).name != name or path.suffix not in _TYPES or not path.is_file():
        return None
    return _asset(path.read_bytes(), path.suffix)


def names() -> list[str]:
    """Names of files in the folder of the page."""
    return sorted(path.name for path in FOLDER.iterdir() if path.suffix in _TYPES)


def one_script(main: str, sources: dict[str, str]) -> str:
    """Script with the effect of module `main`.

    Each module it imports is a function, called once.

    Modules have imports by name and exports of functions, classes and constants, in lines of their own. Raises ValueError.
    """
    order: list[str] = []
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in under_way:
            raise ValueError(f"modules import each other: {' -> '.join([*under_way, name])}")
        if name not in order:
            under_way.append(name)
            for _, other in _IMPORT.findall(sources[name]):
                visit(other)
            under_way.pop()
            order.append(name)

    visit(main)
    parts = []
    for name in order:
        text = _IMPORT.sub(r"const { \1 } = module_\2;\n", sources[name])
        exported = [found for _, found in _EXPORT.findall(text)]
        text = _EXPORT.sub(r"\1\2", text)
        if other := _OTHER.search(text):
            raise ValueError(f"{name}.js cannot be put together with others: {other[0]}")
        if name == main:
            parts.append(text)
        else:
            parts.append(f"const module_{name} = (() => {{\n{text}\nreturn {{ {', '.join(exported)} }};\n}})();\n")
    return "".join(parts)


@cache
def _page() -> tuple[str, dict[str, str]]:
    """Text of index.html, and the files it names that are put together."""
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    sheets = _LINK.findall(index)
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in sheets)
    script = one_script("main", {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")})
    made = {_named("page", style, ".css"): style, _named("page", script, ".js"): script}
    sheet, module = made
    index = _LINK.sub("", index, len(sheets) - 1)
    index = _LINK.sub(f'\n    <link rel="stylesheet" href="page/{sheet}" />', index)
    return index.replace(_SCRIPT, _SCRIPT.replace("main.js", module)), made


def _named(stem: str, text: str, suffix: str) -> str:
    return f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}{suffix}"


def _asset(content: bytes, suffix: str, kept: bool = False) -> Asset:
    packed = gzip.compress(content, 6, mtime=0) if len(content) >= _LEAST_PACKED else None
    return Asset(content, _TYPES[suffix], packed if packed and len(packed) < len(content) else None, kept)
