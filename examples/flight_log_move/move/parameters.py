"""What an operator may choose."""

from dataclasses import dataclass
from typing import Literal

MONTHS = [f"{month:02}" for month in range(1, 13)]


@dataclass(frozen=True)
class Move:
    """Where things lie and what is moved. Paths are relative to the folder that the run is started in."""

    legacy: str = "legacy.sqlite"
    """The source; ``build_legacy.py`` makes it."""
    package: str = "package"
    """The folder that the export fills and the import reads."""
    target: str = "target.sqlite"
    """A SQLite file, or ``postgresql://user@host/database``."""
    mapping: str = "mapping.json"
    """The operator's answers. The gates read it; nothing here writes it."""
    months: int = 12
    """Move the first months of the year only."""
    origin: str = ""
    """Move the flights of one airport of departure only."""
    unknown_tail: Literal["placeholder", "skip"] = "placeholder"
    """What becomes of flights by a plane that the source does not know."""
    cursor: Literal["target", "file"] = "target"
    """Keep each place in the target, in the transaction of the rows; or in Towline's state, after it."""


@dataclass(frozen=True)
class SmallMove(Move):
    """January alone, about 27,000 flights."""

    months: int = 1
