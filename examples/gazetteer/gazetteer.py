"""Countries, their subdivisions and their flags, from files on this disk into SQLite: one task per country.

The data are those of the packages pycountry and django-countries; their files are read, nothing is imported.

    towline run gazetteer.py
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from towline import ArtifactRef, Pipeline, SqlCursor, SyncContext, module, result_of

SCHEMA = """
create table if not exists countries (code text primary key, name text not null, flag_sha256 text);
create table if not exists subdivisions (code text primary key, country text not null references countries,
    name text not null, kind text not null, parent text references subdivisions);
"""


@dataclass(frozen=True)
class Gazetteer:
    """Where the result goes, relative to the folder that the run is started in."""

    target: str = "gazetteer.sqlite"
    work: str = "gazetteer"


@dataclass(frozen=True)
class Subdivision:
    """A region of a country. ``depth``: 0 at the top, one more than its parent's below."""

    code: str
    name: str
    kind: str
    parent: str | None
    depth: int


@dataclass(frozen=True)
class Country:
    """A country with its regions, parents before children."""

    key: str
    name: str
    subdivisions: list[Subdivision]


# ------------------------------------------------------------------ from the packages


def data_folder(package: str) -> Path:
    """Find an installed package on disk without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"{package} is not installed: pip install --no-deps {package}")
    return Path(found.submodule_search_locations[0])


@module
def read_countries(ctx: SyncContext) -> list[Country]:
    """Read what is to be moved; one task per country follows from it."""
    databases = data_folder("pycountry") / "databases"
    rows = json.loads((databases / "iso3166-2.json").read_text(encoding="utf-8"))["3166-2"]
    parents: dict[str, str | None] = {row["code"]: row.get("parent") for row in rows}
    by_country: dict[str, list[Subdivision]] = {}
    for row in rows:
        code = row["code"]
        one = Subdivision(code, row["name"], row["type"], parents[code], depth(code, parents))
        by_country.setdefault(code.partition("-")[0], []).append(one)
    countries = json.loads((databases / "iso3166-1.json").read_text(encoding="utf-8"))["3166-1"]
    return [
        Country(row["alpha_2"], row["name"], sorted(by_country.get(row["alpha_2"], []), key=place))
        for row in sorted(countries, key=lambda row: row["alpha_2"])
    ]


def depth(code: str, parents: dict[str, str | None]) -> int:
    """Count the regions above one."""
    above = parents.get(code)
    return 0 if above is None else 1 + depth(above, parents)


def place(one: Subdivision) -> tuple[int, str]:
    """Order parents before children."""
    return one.depth, one.code


@module
def pack_flags(ctx: SyncContext, countries: list[Country] = result_of(read_countries)) -> ArtifactRef:
    """Keep the flag images as one artifact; a flag without a country is worth a warning."""
    folder = Path(ctx.params(Gazetteer).work, "flags")
    folder.mkdir(parents=True, exist_ok=True)
    codes = {country.key for country in countries}
    for image in sorted((data_folder("django_countries") / "static" / "flags").glob("*.gif")):
        (folder / image.name).write_bytes(image.read_bytes())
        if image.stem.upper() not in codes:
            ctx.finding("FLAG_WITHOUT_COUNTRY", f"{image.name} belongs to no country", evidence={"file": image.name})
    return ctx.artifacts.put("flags", folder)


# ------------------------------------------------------------------ into the target


@module
def create_target(ctx: SyncContext) -> str:
    """Make the tables; return the file."""
    file = ctx.params(Gazetteer).target
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as target:
        target.execute("pragma journal_mode = wal")
        target.executescript(SCHEMA)
    return file


@module(each=result_of(read_countries), timeout=60)
def import_country(
    ctx: SyncContext, item: Country, file: str = result_of(create_target), flags: ArtifactRef = result_of(pack_flags)
) -> int:
    """Write one country and its regions; the cursor lies in the target and moves in the same transaction."""
    folder = Path(ctx.params(Gazetteer).work, "flags")
    image = folder / f"{item.key.lower()}.gif"
    digest = sha256(image.read_bytes()).hexdigest() if image.exists() else None
    with closing(sqlite3.connect(file, timeout=60)) as target:
        target.execute("insert or replace into countries values (?, ?, ?)", (item.key, item.name, digest))
        cursor = ctx.cursor(key=place, total=len(item.subdivisions), store=SqlCursor(target))
        for batch in cursor.batches(item.subdivisions, size=50):
            rows = [(one.code, item.key, one.name, one.kind, one.parent) for one in batch]
            target.executemany("insert or replace into subdivisions values (?, ?, ?, ?, ?)", rows)
            cursor.commit(batch)
            target.commit()
        target.commit()
    return len(item.subdivisions)


@module
def check(ctx: SyncContext, counts: list[int] = result_of(import_country), file: str = result_of(create_target)) -> str:
    """Count what arrived, resolve every parent, and return the digest of all rows."""
    with closing(sqlite3.connect(file)) as target:
        [countries] = next(target.execute("select count(*) from countries"))
        [regions] = next(target.execute("select count(*) from subdivisions"))
        [lost] = next(
            target.execute(
                "select count(*) from subdivisions where parent is not null"
                " and parent not in (select code from subdivisions)"
            )
        )
        digest = digest_of(target)
    if (countries, regions, lost) != (len(counts), sum(counts), 0):
        raise ValueError(f"{countries} countries, {regions} regions, {lost} without their parent")
    ctx.log.info("%s countries, %s regions, digest %s", countries, regions, digest)
    return digest


def digest_of(target: sqlite3.Connection) -> str:
    """Return the SHA-256 of all rows in the order of their keys."""
    sha = sha256()
    for row in everything(target):
        sha.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return sha.hexdigest()


def everything(target: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    """Yield every row of the target."""
    yield from target.execute("select * from countries order by code")
    yield from target.execute("select * from subdivisions order by code")


pipeline = Pipeline("gazetteer", [check], params=Gazetteer)

if __name__ == "__main__":
    pipeline.main()
