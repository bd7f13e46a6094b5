"""A point in time on the one clock that decisions are made on: seconds, monotonic, meaningless in another process.

Owns the mark by which a checkpoint finds such times and moves them to the wall's clock and back. For everybody else a
moment is a float.
"""

from typing import Annotated, Final

MOMENT: Final = "a moment of the decisions' clock"
Moment = Annotated[float, MOMENT]
