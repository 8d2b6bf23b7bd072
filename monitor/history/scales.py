"""Scales: numbers of a wide range as one byte each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.float64]

ENDED, UNKNOWN = 254, 255
"""Codes in place of a number: no more to come, and unknown."""

_CODES = 254


@dataclass(frozen=True)
class Scale:
    """Scale of non-negative numbers.

    Linear up to `exact` units, then `steps` codes a doubling.

    >>> SIZE.decode(SIZE.encode(np.array([0.0, 100.0, 1e6]))).tolist()
    [0.0, 128.0, 961536.0]
    >>> COUNT.decode(COUNT.encode(np.array([0.0, 63.0]))).tolist()
    [0.0, 63.0]
    """

    exact: int
    steps: int
    unit: float = 1.0

    @cached_property
    def values(self) -> Numbers:
        """Number of each code, ascending."""
        codes = np.arange(_CODES, dtype=np.float64)
        above = self.exact * 2.0 ** np.maximum((codes - self.exact) / self.steps, 0.0)
        found: Numbers = np.rint(np.where(codes < self.exact, codes, above)) * self.unit
        return found

    @cached_property
    def _borders(self) -> Numbers:
        found: Numbers = (self.values[1:] + self.values[:-1]) / 2
        return found

    def encode(self, numbers: npt.NDArray[np.generic]) -> Codes:
        """Codes of the nearest numbers; greater ones become the greatest."""
        return np.searchsorted(self._borders, numbers, side="left").astype(np.uint8)

    def decode(self, codes: Codes) -> Numbers:
        """Numbers of codes; those of ENDED and UNKNOWN are NaN."""
        found: Numbers = np.append(self.values, (np.nan, np.nan))[codes]
        return found


COUNT = Scale(64, 8)
"""Epochs and messages: to 64 exactly, then to 4 %."""
RATE = Scale(16, 8)
"""Records a second: to 16 exactly, then to 4 %."""
SIZE = Scale(16, 8, 64.0)
"""Bytes: to 1 KiB in steps of 64, then to 4 %."""
SHARE = Scale(254, 1, 1 / 250)
"""Shares of one: in steps of 0.4 %."""
