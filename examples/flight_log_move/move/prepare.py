"""Phase prepare: three gates judge what was exported, and lay ready the rows that the target gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from move import files
from move.export import ExportedSheets, export_airports, export_flights, export_planes, export_sheets
from move.judge import Directory, Verdict
from move.legacy import Legacy
from move.mapping import read_mapping
from move.parameters import Move
from move.records import Airport, Exported, Flight, Plane, Sheet, TargetAirport, sheet_key
from move.target import Target
from towline import ArtifactRef, SyncContext, module, result_of

Record = TypeVar("Record", bound=msgspec.Struct)


@module(name="prepare.airports", phase="prepare", gate=True)
def prepare_airports(
    ctx: SyncContext,
    exported: Exported = result_of(export_airports),
    months: list[Exported] = result_of(export_flights),
) -> Exported:
    """Find each airport in the directory; those that the operator must judge stop the run."""
    chosen = ctx.params(Move)
    directory = Directory(Legacy(chosen.legacy).directory())
    answers = read_mapping(chosen.mapping).airports
    used = {code for flight in flights(ctx, months) for code in (flight.origin, flight.dest)}
    verdicts = [directory.judge(airport, answers) for airport in received(ctx, exported.file, Airport)]
    for verdict in verdicts:
        report(ctx, verdict, is_used=verdict.airport.code in used)
    rows = [verdict.target() for verdict in verdicts]
    for code in sorted(used - {row.code for row in rows}):
        ctx.finding("DEST_NOT_IN_SOURCE", f"flights go to {code}, which the source lacks", evidence={"code": code})
        added = directory.added(code)
        if added is None:
            raise LookupError(f"{code} is neither in the source nor in the directory")
        rows.append(added)
    return lay_ready(ctx, "airports", sorted(rows, key=lambda row: row.code))


def report(ctx: SyncContext, verdict: Verdict, *, is_used: bool) -> None:
    """Tell the operator of an airport that needs an answer."""
    airport, entry = verdict.airport, verdict.entry
    evidence = {"code": airport.code, "name": airport.name}
    if verdict.kind == "ambiguous" and entry is not None:
        ctx.finding(
            "AIRPORT_AMBIGUOUS",
            f"{airport.code} is {airport.name} here and {entry.name}, {entry.country}, in the directory",
            severity="blocking",
            evidence=evidence | {"ident": entry.ident, "distance_km": f"{verdict.distance_km:.0f}"},
            suggested_action=f"give {airport.code} an ident, or null, in {ctx.params(Move).mapping}",
        )
    elif verdict.kind == "unmatched":
        severity: Literal["blocking", "info"] = "blocking" if is_used else "info"
        ctx.finding(
            "AIRPORT_UNMATCHED", f"{airport.code} is not in the directory", severity=severity, evidence=evidence
        )


@module(name="prepare.planes", phase="prepare", gate=True)
def prepare_planes(
    ctx: SyncContext,
    exported: Exported = result_of(export_planes),
    months: list[Exported] = result_of(export_flights),
) -> Exported:
    """Make a placeholder for each tail number that flies but is not listed, unless its flights are to be skipped."""
    planes = list(received(ctx, exported.file, Plane))
    known = {plane.tail for plane in planes}
    unknown = Counter(flight.tail for flight in flights(ctx, months) if flight.tail and flight.tail not in known)
    for tail, count in sorted(unknown.items()):
        ctx.finding("TAIL_UNKNOWN", f"{tail} is not listed and makes {count} flights", evidence={"tail": tail})
    if ctx.params(Move).unknown_tail == "placeholder":
        planes += [Plane(tail, placeholder=True) for tail in unknown]
    return lay_ready(ctx, "planes", sorted(planes, key=lambda plane: plane.tail))


@module(name="prepare.flights", phase="prepare", gate=True)
def prepare_flights(
    ctx: SyncContext,
    months: list[Exported] = result_of(export_flights),
    sheets: ExportedSheets = result_of(export_sheets),
) -> None:
    """Check every sheet against its digest, name the flights that lack a plane or a sheet, make the target's tables."""
    folder = ctx.artifacts.get(sheets.contents.file, inbox(ctx))
    there = set()
    for sheet in received(ctx, sheets.index.file, Sheet):
        files.read_sheet(folder, sheet.sha256)
        there.add(sheet.key)
    for flight in flights(ctx, months):
        evidence = {"flight": flight.key}
        if flight.tail is None:
            ctx.finding("TAIL_MISSING", f"{flight.key} has no tail number", evidence=evidence)
        if sheet_key(flight.origin, flight.date) not in there:
            ctx.finding("SHEET_MISSING", f"there is no weather for {flight.key}", severity="info", evidence=evidence)
    with Target(ctx.params(Move).target) as target:
        target.create_tables()


# ------------------------------------------------------------------ files in and out


def inbox(ctx: SyncContext) -> Path:
    """Return the folder that this task restores artifacts to."""
    return Path(ctx.params(Move).package, "received", ctx.task_id)


def received(ctx: SyncContext, file: ArtifactRef, kind: type[Record]) -> Iterator[Record]:
    """Yield the records of an exported file."""
    return files.read(ctx.artifacts.get(file, inbox(ctx)), kind)


def flights(ctx: SyncContext, months: Iterable[Exported]) -> Iterator[Flight]:
    """Yield all flights of the package in the order of their keys."""
    for month in months:
        yield from received(ctx, month.file, Flight)


def lay_ready(ctx: SyncContext, name: str, rows: list[TargetAirport] | list[Plane]) -> Exported:
    """Write the rows for the target and keep them as an artifact."""
    file = Path(ctx.params(Move).package, "prepared", f"{name}.jsonl.gz")
    return Exported(files.write(file, rows), ctx.artifacts.put("rows", file))
