"""Processes of a store's job on this host, for its page: stacks, samples, and output."""

from __future__ import annotations

from runtime.folders.store_folder import StoreFolder
from runtime.page.doors import all_profiles, all_stacks
from runtime.page.logs import Written, log_places, read_log
from runtime.session.stacks import Profile, Stacks
from timely.errors import FalkirkError


class ProcessesHere:
    """See `monitor.web.processes.Processes`."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder

    def stacks(self, place: str) -> list[Stacks]:
        """Stacks of the processes at a place."""
        return all_stacks(self._folder, place)

    def samples(self) -> list[Profile]:
        """Samples of the last minute, of each process."""
        return all_profiles(self._folder)

    def places(self) -> list[str]:
        """Places with lines of output."""
        return log_places(self._folder.logs)

    def lines(self, place: str, since: int, most: int) -> list[Written]:
        """Last lines of output of a place with greater numbers than `since`."""
        if place not in self.places():
            raise FalkirkError(f"nothing was kept of {place}: there is {', '.join(self.places()) or 'nothing'}")
        return read_log(self._folder.logs, place, since, most)
