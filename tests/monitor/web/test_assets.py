"""Files of the page: few requests for the first screen, compressed, kept by browsers, and modules as one script."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from monitor.web.assets import FOLDER, asset, names, one_script
from tests.monitor.web.programs import wide_layout
from tests.monitor.web.serving import get, serving
from tests.monitor.web.standing import StandingJob


def test_modules_are_called_once_each_and_before_those_that_need_them(tmp_path: Path) -> None:
    sources = {
        "main": 'import { twice } from "./twice.js";\nimport { next } from "./count.js";\n'
        "await null;\nconsole.log(next(), twice(next));\n",
        "twice": 'import { next } from "./count.js";\nconst own = 2;\nexport function twice() {\n  return own * next();\n}\n',
        "count": "let own = 0;\nexport const next = () => (own += 1);\n",
    }
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    file = tmp_path / "all.mjs"
    file.write_text(one_script("main", sources))
    done = subprocess.run([node, file], capture_output=True, text=True, check=True)
    assert done.stdout == "1 4\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('import { main } from "./main.js";\n', "import each other: main -> other -> main"),
        ('import all from "./more.js";\n', "other.js cannot be put together with others: import all"),
        ("export default 1;\n", "other.js cannot be put together"),
        ("export let moving = 1;\n", "other.js cannot be put together"),
    ],
)
def test_a_module_of_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        one_script("main", {"main": 'import { other } from "./other.js";\nexport const main = 1;\n', "other": text})


def test_the_page_is_one_script_and_one_style_sheet_that_browsers_keep() -> None:
    with serving(StandingJob(wide_layout(10))) as url:
        _, headers, index = get(url, "/")
        assert headers["cache-control"] == "no-store"
        scripts = re.findall(r'<script type="module" src="([^"]+)"', index.decode())
        sheets = re.findall(r'<link rel="stylesheet" href="([^"]+)"', index.decode())
        assert len(scripts) == len(sheets) == 1
        for name in (*scripts, *sheets):
            status, headers, plain = get(url, f"/{name}")
            assert status == 200
            assert "immutable" in headers["cache-control"]
            _, headers, packed = get(url, f"/{name}", headers={"accept-encoding": "gzip"})
            assert headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed) == plain
            assert len(packed) < len(plain) / 2
    style = asset(sheets[0].removeprefix("page/"))
    assert style is not None
    for path in FOLDER.glob("*.css"):
        assert path.read_bytes() in style.content


def test_each_file_is_there_as_it_is_written_and_nothing_else() -> None:
    for name in names():
        found = asset(name)
        assert found is not None
        assert name == "index.html" or found.content == (FOLDER / name).read_bytes()
        assert not found.kept
    assert asset("../app.py") is None
    assert asset("page-0.js") is None
    assert asset("") is None
