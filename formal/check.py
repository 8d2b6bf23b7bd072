"""Check the recovery models with spin: each whole, and with each rule dropped.

    python formal/check.py [WORD ...]      only what has one of the words in its model's or its rule's name

A whole model must hold, in every run that it has, and every run of it must end. With a rule dropped an invariant must break,
the one that the table names. Exit code 1 where it is otherwise, 2 where spin or a C compiler is missing. formal/README.md says
more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

NEEDS = (
    "The models are checked by spin 6, which needs a C compiler: install both, with `apt-get install spin gcc` on Debian and "
    "Ubuntu, `brew install spin` on macOS"
)


@dataclass(frozen=True)
class Case:
    """Model with compiler flags: whole, or without the rule `dropped`.

    Without the rule, `breaks` must break.
    """

    model: str
    flags: tuple[str, ...] = ()
    dropped: str | None = None
    breaks: str | None = None
    cycles: bool = True
    """Search a whole model for endless runs too, which takes twice the states."""

    @property
    def title(self) -> str:
        """Dropped rule in words, or the flags of a whole model."""
        if self.dropped is not None:
            return self.dropped.lower().replace("_", " ")
        return f"whole {' '.join(self.flags)}".strip()


@dataclass(frozen=True)
class Outcome:
    """Result of a check.

    `broke`: the invariant that broke, if any. `wrong`: the deviation from the expected result, if any.
    """

    broke: str | None
    states: int
    wrong: str | None


WHOLE = (
    Case("rounds", ("FAULTS=2",)),
    Case("rounds", ("FAULTS=3", "EPOCHS=1"), cycles=False),
    Case("survivors", ("TREATED_AS_REPEATING", "EPOCHS=3")),
    Case("survivors", ("DICE",)),
    Case("watermark", ("FAULTS=3",)),
    Case("gates"),
)

_SAME, _DICE = ("TREATED_AS_REPEATING",), ("DICE",)
_LOST, _TWICE, _ENDS = "no_record_is_lost", "no_record_comes_twice", "everything_ends"
_KEPT, _PROMISED = "kept_messages_are_collected", "decisions_keep_what_was_promised"

OWN = frozenset({_LOST, _TWICE, _ENDS, "survivors_keep_what_they_have", "what_has_left_a_region_is_not_taken_back"})
"""Invariants of the whole job, checked by the models only."""

RULES = (
    Case("rounds", (), "LINKS_ARE_DRAINED", _LOST),
    Case("rounds", (), "THE_DEAD_NEED_NOT_DRAIN", _ENDS),
    Case("rounds", (), "WHO_IS_PAUSED_DOES_NOT_RUN", _TWICE),
    Case("rounds", (), "WHO_IS_DRAINED_HAS_NOTED_THE_DECISION", _LOST),
    Case("rounds", (), "WHO_HAS_FAILED_DOES_NOT_STAY", "who_has_failed_does_not_stay"),
    Case("rounds", (), "DECISIONS_ARE_DURABLE_FIRST", "decisions_are_durable_first"),
    Case("rounds", (), "NUMBERS_OF_ROUNDS_ARE_RESERVED", "numbers_of_rounds_are_reserved"),
    Case("rounds", (), "WHO_MISSED_A_DECISION_NOTES_IT_FIRST", _LOST),
    Case("rounds", (), "WHO_LIVES_AND_MISSED_A_DECISION_IS_TOLD", _LOST),
    Case("rounds", (), "WHO_IS_PAUSED_NEEDS_A_ROUND", _ENDS),
    Case("rounds", (), "WHAT_A_DECISION_LEAVES_OUT_IS_VOID", _LOST),
    Case("rounds", (), "WHAT_THE_DEAD_SENT_IS_VOID", _TWICE),
    Case("rounds", (), "FRAMES_OF_EARLIER_GENERATIONS_ARE_VOID", _TWICE),
    Case("rounds", (), "JOURNALS_ARE_FENCED", _LOST),
    Case("rounds", (), "W_RISES_WHILE_ALL_ARE_THERE", "all_are_there_while_it_runs"),
    Case("survivors", _SAME, "SENDERS_KEEP_WHAT_THEY_SEND", _LOST),
    Case("survivors", _SAME, "KEPT_MESSAGES_GO_WITH_W", _KEPT),
    Case("survivors", _SAME, "COVERAGE_SAYS_WHAT_IS_FORGOTTEN", _LOST),
    Case("survivors", _SAME, "COVERAGE_BEGINS_AT_THE_CUT", _LOST),
    Case("survivors", _SAME, "SUPPRESSION", _TWICE),
    Case("survivors", _SAME, "SUPPRESSION_IS_CUMULATIVE", _TWICE),
    Case("survivors", _SAME, "WHAT_IS_SUPPRESSED_IS_KEPT", _LOST),
    Case("survivors", _SAME, "INCOMPLETE_TIMES_ARE_DROPPED", _TWICE),
    Case("survivors", _SAME, "WHO_GOES_BACK_FORGETS_WHAT_IT_KEPT", _TWICE),
    Case("survivors", _SAME, "QUEUES_ARE_REBUILT_WHOLLY", _TWICE),
    Case("survivors", _SAME, "WHAT_CAME_FROM_A_STORE_WAS_DELIVERED", _TWICE),
    Case("survivors", _SAME, "NOBODY_IS_AHEAD_ON_ITS_OWN_WORKER", _TWICE),
    Case("survivors", _SAME, "WHO_CAME_BACK_IS_COMPLETE", "survivors_keep_what_they_have"),
    Case("survivors", _DICE, "WHAT_DOES_NOT_REPEAT_IS_NOT_TAKEN_TO", _LOST),
    Case("survivors", _DICE, "DETERMINISM_IS_A_FRONTIER", _LOST),
    Case("watermark", (), "W_IS_JOURNALED_FIRST", "watermarks_are_durable_first"),
    Case("watermark", (), "W_IS_A_SOLUTION", "watermarks_are_consistent"),
    Case("watermark", (), "WHAT_KEEPS_NOTHING_HAS_ALL_OF_W", _PROMISED),
    Case("watermark", (), "REPORTS_WAIT_FOR_THEIR_SEGMENT", "reports_wait_for_their_segment"),
    Case("watermark", (), "REPORTS_OF_EARLIER_GENERATIONS_ARE_VOID", "watermarks_can_be_restored"),
    Case("watermark", (), "WHAT_A_DECISION_LEAVES_OUT_IS_VOID", _LOST),
    Case("watermark", (), "CUTS_ARE_AT_WHAT_IS_COMPLETE", "cuts_are_at_what_is_complete"),
    Case("watermark", (), "CHECKPOINTS_STAY_DOWN_TO_W", "watermarks_can_be_restored"),
    Case("watermark", (), "LOGS_ARE_SAVED_WITH_THE_CUT", _LOST),
    Case("watermark", (), "LOGS_GO_WITH_THEIR_RECEIVERS_W", _LOST),
    Case("watermark", (), "LOGS_ARE_COLLECTED", "logs_are_collected"),
    Case("watermark", (), "SOURCES_WAIT_FOR_W", _LOST),
    Case("watermark", (), "SINKS_WAIT_FOR_W", _TWICE),
    Case("watermark", (), "WHAT_IS_DISCARDED_MUST_BE_HELD", _LOST),
    Case("watermark", (), "ACTING_ON_COMPLETENESS_COUNTS", _LOST),
    Case("gates", (), "GATES_WAIT_FOR_THE_COMMIT", "what_has_left_a_region_is_not_taken_back"),
    Case("gates", (), "GATES_ARE_OPEN_FOR_WHAT_IS_DURABLE", _ENDS),
    Case("gates", (), "WHAT_WAITS_AT_A_GATE_IS_OUTSTANDING", "cuts_are_at_what_is_complete"),
    Case("gates", (), "OUTPUTS_WAIT_FOR_THE_COMMIT", _PROMISED),
    Case("gates", (), "WHO_IS_FED_PUBLISHES_BY_W", _TWICE),
    Case("gates", (), "LOGS_ARE_SAVED_WITH_THE_CUT", _LOST),
    Case("gates", (), "WHO_STAYS_REFUSES_WHAT_IT_HAD", _TWICE),
)


def missing() -> str | None:
    """Message with the programs to install; None if all are there."""
    spin = shutil.which("spin")
    found = _output(spin, "-V") if spin else ""
    if "Spin Version 6" in found and _compiler():
        return None
    return NEEDS


def _compiler() -> str | None:
    named = os.environ.get("CC", "").split()
    return next((each for name in [*named[:1], "cc", "gcc", "clang"] if (each := shutil.which(name))), None)


def _output(*command: str, cwd: str | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def check(case: Case) -> Outcome:
    """Search a model exhaustively and compare the result with the expected one."""
    compiler = _compiler()
    assert compiler is not None, NEEDS
    flags = [*case.flags, *([f"DROP_{case.dropped}"] if case.dropped else [])]
    whole = case.dropped is None
    with tempfile.TemporaryDirectory() as folder:
        output = _output("spin", *(f"-D{flag}" for flag in flags), "-a", str(HERE / f"{case.model}.pml"), cwd=folder)
        how = ["-O2", "-DCOLLAPSE"] if whole else ["-O1"]
        how += ["-DNP"] if whole and case.cycles else ["-DSAFETY"]
        output += _output(compiler, *how, "-w", "-DNOREDUCE", "-DMEMLIM=3000", "-o", "pan", "pan.c", cwd=folder)
        if not Path(folder, "pan").exists():
            return Outcome(None, 0, f"it cannot be compiled: {output.strip()}")
        output = _output("./pan", "-m1000000", *(["-l"] if "-DNP" in how else []), cwd=folder)
    return _judge(case, output)


def _judge(case: Case, output: str) -> Outcome:
    states = re.search(r"^\s*([\d.e+]+) states, stored", output, re.MULTILINE)
    errors = re.search(r"errors: (\d+)", output)
    if states is None or errors is None:
        return Outcome(None, 0, f"the search broke off: {output.strip()[-500:]}")
    count = int(float(states[1]))
    found = re.search(r"assertion violated \(*(\w+)\|\|", output)
    broke = found[1] if found else (_ENDS if "cycle (at" in output or "invalid end state (" in output else None)
    if broke is None and (
        errors[1] != "0" or re.search("max search depth too small|out of memory|reached -DMEMLIM", output)
    ):
        return Outcome(None, count, f"not all of it was searched: {output.strip()[-500:]}")
    if broke == case.breaks:
        return Outcome(broke, count, None)
    wanted = f"{case.breaks} must break" if case.breaks else "it must hold"
    return Outcome(broke, count, f"{wanted}, and {f'{broke} broke' if broke else 'nothing did'}")


def main(words: list[str]) -> int:
    """Check all cases, or those with one of `words` in their names; the exit code."""
    needs = missing()
    if needs is not None:
        print(needs, file=sys.stderr)
        return 2
    cases = [
        case for case in (*WHOLE, *RULES) if not words or any(word in f"{case.model} {case.title}" for word in words)
    ]
    wrong = 0
    print(f"{'model':<10} {'rule that is dropped':<48} {'invariant that breaks':<42} {'states':>10}")
    with ThreadPoolExecutor(2) as threads:
        for case, outcome in zip(cases, threads.map(check, cases)):
            print(f"{case.model:<10} {case.title:<48} {outcome.broke or '-':<42} {outcome.states:>10,}", flush=True)
            if outcome.wrong is not None:
                wrong += 1
                print(f"  WRONG: {outcome.wrong}", flush=True)
    print(f"{len(cases)} searches, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
