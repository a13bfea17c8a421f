"""Play the operator: answer each ambiguous airport and write ``mapping.json``.

An airport is the entry with its local code, if that lies near, or the one that has also its name; else the directory
does not have it (null). A person would look at a map instead.

    python answer.py [LEGACY] [MAPPING]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from move.judge import AMBIGUOUS_KM, Directory, distance_km
from move.legacy import Legacy


def answers(legacy: Legacy) -> dict[str, str | None]:
    """Return an answer for every airport that the gate calls ambiguous."""
    directory = Directory(legacy.directory())
    found: dict[str, str | None] = {}
    for airport in legacy.airports():
        verdict = directory.judge(airport, {})
        if verdict.kind != "ambiguous" or verdict.entry is None:
            continue
        local = directory.by_local.get(airport.code)
        if local is not None and distance_km(airport, local) <= AMBIGUOUS_KM:
            found[airport.code] = local.ident
        else:
            same_name = letters(airport.name) == letters(verdict.entry.name)
            found[airport.code] = verdict.entry.ident if same_name else None
    return found


def letters(name: str) -> str:
    """Return the letters of a name: punctuation and spaces differ between the sources."""
    return "".join(filter(str.isalpha, name.casefold()))


def main(legacy: str = "legacy.sqlite", mapping: str = "mapping.json") -> None:
    """Write the file and say what is in it."""
    found = answers(Legacy(legacy))
    Path(mapping).write_text(json.dumps({"airports": found}, indent=1) + "\n", encoding="utf-8")
    known = sum(ident is not None for ident in found.values())
    print(f"{mapping}: {known} airports found in the directory, {len(found) - known} it does not have")


if __name__ == "__main__":
    main(*sys.argv[1:])
