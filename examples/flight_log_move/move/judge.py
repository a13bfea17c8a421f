"""Match the airports of the source with a worldwide directory. Pure: records in, verdicts out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from move.records import Airport, DirectoryAirport, TargetAirport

AMBIGUOUS_KM = 50.0
"""Further apart than this, two airports that share an IATA code are hardly the same."""

_EARTH_KM = 6371.0


@dataclass(frozen=True)
class Verdict:
    """What is known of one airport of the source: its entry in the directory, or why there is none."""

    airport: Airport
    kind: Literal["matched", "answered", "ambiguous", "unmatched"]
    entry: DirectoryAirport | None = None
    distance_km: float = 0.0

    def target(self) -> TargetAirport:
        """Return the row that the target gets."""
        a = self.airport
        return TargetAirport(a.code, a.name, a.latitude, a.longitude, a.zone, self.entry.ident if self.entry else None)


class Directory:
    """The directory by its three codes."""

    def __init__(self, entries: Iterable[DirectoryAirport]) -> None:
        self.by_ident = {entry.ident: entry for entry in entries}
        self.by_iata = {entry.iata: entry for entry in self.by_ident.values() if entry.iata}
        self.by_local = {entry.local: entry for entry in self.by_ident.values() if entry.local}

    def judge(self, airport: Airport, answers: Mapping[str, str | None]) -> Verdict:
        """Match one airport: by the operator's answer, by IATA code, by local code.

        An IATA code is international, and the source uses it loosely: a match too far away is for the operator to
        judge. A local code is given by the authority that the source took its own codes from.

        Raises:
            ValueError: The operator's answer names no entry of the directory.
        """
        if airport.code in answers:
            ident = answers[airport.code]
            if ident is not None and ident not in self.by_ident:
                raise ValueError(f"mapping.json maps {airport.code} to {ident}, which the directory does not have")
            return Verdict(airport, "answered", self.by_ident[ident] if ident else None)
        if entry := self.by_iata.get(airport.code):
            distance = distance_km(airport, entry)
            return Verdict(airport, "ambiguous" if distance > AMBIGUOUS_KM else "matched", entry, distance)
        if entry := self.by_local.get(airport.code):
            return Verdict(airport, "matched", entry, distance_km(airport, entry))
        return Verdict(airport, "unmatched")

    def added(self, code: str) -> TargetAirport | None:
        """Return an airport that the source lacks, as the directory has it."""
        entry = self.by_iata.get(code)
        if entry is None:
            return None
        return TargetAirport(code, entry.name, entry.latitude, entry.longitude, entry.zone, entry.ident)


def distance_km(one: Airport, other: DirectoryAirport) -> float:
    """Return the distance between two places on the globe, in kilometres (haversine)."""
    north1, east1, north2, east2 = map(math.radians, (one.latitude, one.longitude, other.latitude, other.longitude))
    half = math.sin((north2 - north1) / 2) ** 2
    half += math.cos(north1) * math.cos(north2) * math.sin((east2 - east1) / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))
