"""Reading the source. Each reader yields records in the order of their keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from move.records import Airport, Carrier, DirectoryAirport, Flight, Plane, Sheet, flight_key, sheet_key

CARRIERS = "select carrier, name from airlines order by carrier"
AIRPORTS = "select faa, name, lat, lon, tzone from airports order by faa"
DIRECTORY = "select icao, iata, lid, name, country, lat, lon, tz from directory order by icao"
PLANES = "select tailnum, year, type, manufacturer, model, engines, seats from planes order by tailnum"
SHEETS = "select origin, date, sha256, rows from sheets order by origin, date"
FLIGHTS = """
select day, origin, carrier, flight, sched_dep_time, dest, tailnum, dep_time, dep_delay, sched_arr_time, arr_time,
       arr_delay, air_time, distance
from flights where month = ? and (? = '' or origin = ?)
order by day, origin, carrier, flight, sched_dep_time
"""


class Legacy:
    """The source, opened for reading alone."""

    def __init__(self, file: str) -> None:
        if not Path(file).is_file():
            raise FileNotFoundError(f"{file}: there is no source; build it with build_legacy.py")
        self._file = file

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(next(self._rows(f"select count(*) from {table}"))[0])

    def flights_per_month(self, origin: str) -> dict[str, int]:
        """Return the number of flights of each month, of one origin or (empty) of all."""
        query = "select month, count(*) from flights where (? = '' or origin = ?) group by month"
        return {f"{month:02}": count for month, count in self._rows(query, origin, origin)}

    def carriers(self) -> Iterator[Carrier]:
        return (Carrier(*row) for row in self._rows(CARRIERS))

    def airports(self) -> Iterator[Airport]:
        return (Airport(*row) for row in self._rows(AIRPORTS))

    def directory(self) -> Iterator[DirectoryAirport]:
        return (DirectoryAirport(*row) for row in self._rows(DIRECTORY))

    def planes(self) -> Iterator[Plane]:
        return (Plane(*row) for row in self._rows(PLANES))

    def sheets(self) -> Iterator[Sheet]:
        for origin, date, digest, rows in self._rows(SHEETS):
            yield Sheet(sheet_key(origin, date), digest, rows)

    def sheet_contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the digest and the bytes of every sheet."""
        yield from self._rows("select sha256, content from sheets order by sha256")

    def flights(self, month: str, origin: str) -> Iterator[Flight]:
        """Yield the flights of one month, ``01`` to ``12``."""
        for day, start, carrier, number, scheduled, *rest in self._rows(FLIGHTS, int(month), origin, origin):
            date = f"2013-{month}-{day:02}"
            dest, tail, departure, departure_delay, scheduled_arrival, arrival, arrival_delay, air_time, distance = rest
            yield Flight(
                key=flight_key(date, start, carrier, number, scheduled),
                date=date,
                origin=start,
                dest=dest,
                carrier=carrier,
                number=number,
                tail=tail,
                scheduled_departure=scheduled,
                departure=departure,
                departure_delay=departure_delay,
                scheduled_arrival=scheduled_arrival,
                arrival=arrival,
                arrival_delay=arrival_delay,
                air_time=air_time,
                distance=distance,
            )

    def _rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as connection:
            yield from connection.execute(query, values)
