"""Which frames of a traceback are the program's own, told by their file alone. Pure.

A traceback may come from another machine, so paths are judged by their shape; the folder of this Towline is known.
"""

from __future__ import annotations

import os
import re
from typing import Final

_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOREIGN: Final = r"<frozen |[/\\](site|dist)-packages[/\\]|[/\\]lib(64)?[/\\]python3\.\d+t?[/\\]|[/\\]Lib[/\\](asyncio|concurrent)[/\\]"


def is_own_frame(line: str) -> bool:
    """Say whether a ``File "...", line 1, in f`` line is of the program: not of Python, Towline or another package."""
    return f'"{_HERE}{os.sep}' not in line and re.search(_FOREIGN, line) is None


def last_own_frame(traceback: str) -> str | None:
    """Return the innermost frame line that is the program's own, else the innermost of all; ``None`` without frames."""
    frames = [line.strip() for line in traceback.splitlines() if line.lstrip().startswith("File ")]
    own = [frame for frame in frames if is_own_frame(frame)]
    found = own or frames
    return found[-1] if found else None
