"""The cost of recovery, as a ratio that a noisy machine can show: both jobs at the same time, on two cores that they exchange.

CPU seconds of one program differ by a third from run to run where others use the machine, too. Here a worker with recovery and
one without begin together, each on a core, and exchange cores ten times a second, so that whatever slows one slows both;
monitor and supervisor take of both cores what they need. `--part` says which policy, as in `recovery_cost.py`;
"no_recovery" against itself shows what the method gives for no difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import arguments, report
from recovery_cost import MEET

BESIDE = {"no_recovery": "no_recovery", "lazy_1s": "no_recovery"}
"""With which part another is compared; the others with "no_recovery_epochs"."""


def main() -> None:
    args = arguments()
    rest = ["--size", str(args.size), "--data", str(args.data)]
    program = str(Path(__file__).with_name("recovery_cost.py"))
    with tempfile.TemporaryDirectory() as folder:
        both = [
            subprocess.Popen(
                [sys.executable, program, *rest, "--part", part],
                stdout=subprocess.PIPE,
                env=os.environ | {MEET: folder},
                text=True,
            )
            for part in (BESIDE.get(args.part, "no_recovery_epochs"), args.part)
        ]
        said = [process.communicate()[0] for process in both]
    if any(process.returncode for process in both):
        sys.exit("one of the two jobs has failed")
    without, with_it = (json.loads(text) for text in said)
    if without["check"] != with_it["check"]:
        sys.exit(f"their outputs differ: {without['check']} and {with_it['check']}")
    report(with_it["value"] / without["value"], cpu_seconds=with_it["value"], without=without["value"])


if __name__ == "__main__":
    main()
