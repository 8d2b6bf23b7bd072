"""Records of mates: progress, starts, failures, and lag for good. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from monitor.coordination.supervision import MateView
from runtime.control import Followed

MOST_FAILURES = 5
"""Limit on failures of mates of one worker, in a row."""

BEHIND = 2
"""Most durable checkpoints without being loaded, of a mate keeping up."""

BEHIND_SECONDS = 120.0
"""Longest time further behind, of a mate that had caught up."""


@dataclass(slots=True)
class _Record:
    view: MateView
    failures: int = 0
    """In a row, since one had caught up."""
    behind_since: float | None = None
    """Begin of the lag of a mate once caught up; None while it keeps up."""


class MateRecords:
    """Records of the workers' mates."""

    def __init__(self, workers: int) -> None:
        self._of = {worker: _Record(MateView(worker, "begins")) for worker in range(workers)}

    @property
    def views(self) -> tuple[MateView, ...]:
        """Mates as they are now."""
        return tuple(each.view for each in self._of.values())

    def may_begin(self, worker: int) -> bool:
        """False once mates of this worker have failed too often in a row."""
        return self._of[worker].failures < MOST_FAILURES

    def begun(self, worker: int, pid: int) -> None:
        """Record the start of a mate."""
        of = self._of[worker]
        of.behind_since = None
        of.view = MateView(worker, "loads", pid, begun=of.view.begun + 1)

    def followed(self, worker: int, report: Followed, now: float) -> None:
        """Take a mate's report of itself."""
        of = self._of[worker]
        new = {"memory": report.memory, "epoch": report.epoch, "behind": report.behind, "left": report.left}
        of.view = replace(of.view, **new)
        if of.view.state != "follows" or report.behind <= BEHIND:
            of.behind_since = None
        elif of.behind_since is None:
            of.behind_since = now

    def caught_up(self, worker: int, seconds: float) -> None:
        """Record a mate as having the durable state of its worker."""
        of = self._of[worker]
        of.failures = 0
        of.view = replace(of.view, state="follows", seconds=seconds)

    def fallen_behind(self, now: float) -> list[int]:
        """Workers with mates behind for too long."""
        return [
            w for w, of in self._of.items() if of.behind_since is not None and now - of.behind_since > BEHIND_SECONDS
        ]

    def took_over(self, worker: int) -> None:
        """Record a mate as in the place of its worker."""
        self._of[worker].view = self._without(worker, "begins")

    def lost(self, worker: int) -> bool:
        """Record the failure of a mate; True if another one is to begin."""
        of = self._of[worker]
        of.failures += 1
        again = self.may_begin(worker)
        of.view = self._without(worker, "begins" if again else "none")
        return again

    def _without(self, worker: int, state: str) -> MateView:
        self._of[worker].behind_since = None
        return MateView(worker, state, begun=self._of[worker].view.begun)
