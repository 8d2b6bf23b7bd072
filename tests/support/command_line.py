"""The command line in this process: for what it says, where starting Python again would show nothing more."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock


def falkirk_command(*words: str) -> tuple[int, str]:
    """The exit code of `falkirk` with these words, and all that it prints, without colours and in wide lines."""
    import falkirk.cli

    def leave(code: int) -> None:
        raise SystemExit(code)

    said, code = io.StringIO(), 0
    quiet = {"COLUMNS": "2000", "TERM": "dumb", "NO_COLOR": "1"}
    with mock.patch.object(falkirk.cli, "_leave", leave), mock.patch.dict(os.environ, quiet):
        try:
            with redirect_stdout(said), redirect_stderr(said):
                falkirk.cli.app(list(words), prog_name="falkirk")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return code, said.getvalue()
