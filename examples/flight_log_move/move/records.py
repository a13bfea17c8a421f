"""One record per kind of row, as it travels in the package, and the keys that order them."""

from __future__ import annotations

import msgspec

from towline import ArtifactRef


class Carrier(msgspec.Struct, frozen=True):
    code: str
    name: str


class Airport(msgspec.Struct, frozen=True):
    """An airport of the source; degrees north and east."""

    code: str
    name: str
    latitude: float
    longitude: float
    zone: str | None


class DirectoryAirport(msgspec.Struct, frozen=True):
    """An airport of the worldwide directory. ``ident`` is unique; ``iata`` and ``local`` may be empty."""

    ident: str
    iata: str
    local: str
    name: str
    country: str
    latitude: float
    longitude: float
    zone: str


class TargetAirport(msgspec.Struct, frozen=True):
    """An airport as the target holds it: ``ident`` links it to the directory."""

    code: str
    name: str
    latitude: float
    longitude: float
    zone: str | None
    ident: str | None


class Plane(msgspec.Struct, frozen=True):
    """A plane. ``placeholder``: only its tail number is known, from the flights."""

    tail: str
    year: int | None = None
    kind: str | None = None
    manufacturer: str | None = None
    model: str | None = None
    engines: int | None = None
    seats: int | None = None
    placeholder: bool = False


class Sheet(msgspec.Struct, frozen=True):
    """One day's weather at one airport: a gzip CSV file that is named by its SHA-256."""

    key: str
    sha256: str
    rows: int


class Flight(msgspec.Struct, frozen=True):
    """A flight. Times are local, hours times 100 plus minutes; delays and air time are minutes, distance miles."""

    key: str
    date: str
    origin: str
    dest: str
    carrier: str
    number: int
    tail: str | None
    scheduled_departure: int
    departure: int | None
    departure_delay: int | None
    scheduled_arrival: int
    arrival: int | None
    arrival_delay: int | None
    air_time: int | None
    distance: int


class Exported(msgspec.Struct, frozen=True):
    """What an export or a gate hands on: how many rows lie in which file."""

    rows: int
    file: ArtifactRef


def flight_key(date: str, origin: str, carrier: str, number: int, scheduled: int) -> str:
    """Name a flight: unique over the year, and rising in the order in which the source is read."""
    return f"{date}/{origin}-{carrier}-{number:05}-{scheduled:04}"


def sheet_key(origin: str, date: str) -> str:
    """Name a weather sheet."""
    return f"{origin}/{date}"
