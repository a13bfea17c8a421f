"""Phase import: everything in batches under a cursor, so that a kill repeats at most one batch per task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from move import files
from move.export import ExportedSheets, export_carriers, export_flights, export_sheets
from move.legacy import FLIGHTS
from move.parameters import MONTHS, Move
from move.prepare import inbox, prepare_airports, prepare_planes, received
from move.records import Carrier, Exported, Flight, Plane, Sheet, TargetAirport, sheet_key
from move.target import Row, Target
from towline import CursorKey, Query, SqlCursor, SyncContext, module, result_of

Item = TypeVar("Item")

BATCH = 500


def move_rows(
    ctx: SyncContext,
    target: Target,
    items: Iterable[Item],
    total: int,
    key: Callable[[Item], CursorKey],
    write: Callable[[Iterable[Item]], object],
    query: Query | None = None,
) -> None:
    """Write items batch by batch, each as one transaction, and move the cursor with them.

    The cursor lies in the target and moves in the same transaction, or in Towline's state and moves after it: then a
    kill between the two repeats a batch, which changes nothing.
    """
    in_target = ctx.params(Move).cursor == "target"
    cursor = ctx.cursor(key=key, total=total, query=query, store=SqlCursor(target.connection) if in_target else None)
    for batch in cursor.batches(items, size=BATCH):
        write(batch)
        if not in_target:
            target.commit()
        cursor.commit(batch)
        if in_target:
            target.commit()


@module(name="import.carriers", phase="import", pools="target")
def import_carriers(ctx: SyncContext, exported: Exported = result_of(export_carriers)) -> None:
    with Target(ctx.params(Move).target) as target:
        rows = received(ctx, exported.file, Carrier)
        move_rows(
            ctx,
            target,
            rows,
            exported.rows,
            key=lambda carrier: carrier.code,
            write=lambda batch: target.write("carriers", ((c.code, c.name) for c in batch)),
        )


@module(name="import.airports", phase="import", pools="target")
def import_airports(ctx: SyncContext, prepared: Exported = result_of(prepare_airports)) -> None:
    with Target(ctx.params(Move).target) as target:
        rows = received(ctx, prepared.file, TargetAirport)
        move_rows(
            ctx,
            target,
            rows,
            prepared.rows,
            key=lambda airport: airport.code,
            write=lambda batch: target.write("airports", map(airport_row, batch)),
        )


def airport_row(airport: TargetAirport) -> Row:
    a = airport
    return a.code, a.name, a.latitude, a.longitude, a.zone, a.ident


@module(name="import.planes", phase="import", pools="target")
def import_planes(ctx: SyncContext, prepared: Exported = result_of(prepare_planes)) -> None:
    with Target(ctx.params(Move).target) as target:
        rows = received(ctx, prepared.file, Plane)
        move_rows(
            ctx,
            target,
            rows,
            prepared.rows,
            key=lambda plane: plane.tail,
            write=lambda batch: target.write("planes", map(plane_row, batch)),
        )


def plane_row(plane: Plane) -> Row:
    p = plane
    return p.tail, p.year, p.kind, p.manufacturer, p.model, p.engines, p.seats, int(p.placeholder)


@module(name="import.sheets", phase="import", pools="target")
def import_sheets(ctx: SyncContext, exported: ExportedSheets = result_of(export_sheets)) -> None:
    """Store each sheet in two stages: its row, then its bytes."""
    in_target = ctx.params(Move).cursor == "target"
    folder = ctx.artifacts.get(exported.contents.file, inbox(ctx))
    with Target(ctx.params(Move).target) as target:
        cursor = ctx.cursor(
            key=sheet_order,
            stages=("row", "sheet", "done"),
            total=exported.index.rows,
            store=SqlCursor(target.connection) if in_target else None,
        )
        for sheet in cursor.items(received(ctx, exported.index.file, Sheet)):
            if cursor.needs(sheet, "row"):
                target.write("sheets", [(sheet.key, sheet.sha256, sheet.rows, None)])
                if not in_target:
                    target.commit()
                cursor.stage(sheet, "row")
            if cursor.needs(sheet, "sheet"):
                target.set_content(sheet.key, files.read_sheet(folder, sheet.sha256))
                if not in_target:
                    target.commit()
                cursor.stage(sheet, "sheet")
            cursor.commit(sheet)
            target.commit()


def sheet_order(sheet: Sheet) -> str:
    return sheet.key


@module(
    name="import.flights",
    phase="import",
    matrix={"month": MONTHS},
    after=[import_carriers, import_airports, import_planes, import_sheets],
    pools="target",
    timeout=0,
)
def import_flights(ctx: SyncContext, month: str, exported: Exported = result_of(export_flights, same_key=True)) -> None:
    """Write one month; flights without a plane are recorded as skipped."""
    with Target(ctx.params(Move).target) as target:
        sheets = {key for (key,) in target.query("select key from sheets")}
        planes = {tail for (tail,) in target.query("select tail from planes")}
        target.commit()  # ends the reading: a transaction that began by reading may not write when others wrote since

        def write(batch: Iterable[Flight]) -> None:
            reasons = [(flight, skip_reason(flight, planes)) for flight in batch]
            target.write("flights", (flight_row(flight, sheets) for flight, why in reasons if why is None))
            target.write("skipped", ((flight.key, why) for flight, why in reasons if why is not None))

        move_rows(
            ctx,
            target,
            received(ctx, exported.file, Flight),
            exported.rows,
            key=lambda flight: flight.key,
            write=write,
            query=Query(FLIGHTS, {"month": month, "origin": ctx.params(Move).origin}),
        )


def skip_reason(flight: Flight, planes: set[str]) -> str | None:
    """Say why a flight cannot be moved, or None."""
    if flight.tail is None:
        return "TAIL_MISSING"
    return None if flight.tail in planes else "TAIL_UNKNOWN"


def flight_row(flight: Flight, sheets: set[str]) -> Row:
    """Return the row of a flight, with its sheet if there is one."""
    f, sheet = flight, sheet_key(flight.origin, flight.date)
    return (
        *(f.key, f.date, f.origin, f.dest, f.carrier, f.number, f.tail, f.scheduled_departure, f.departure),
        *(f.departure_delay, f.scheduled_arrival, f.arrival, f.arrival_delay, f.air_time, f.distance),
        sheet if sheet in sheets else None,
    )


@module(name="import.links", phase="import", after=[import_flights], pools="target")
def import_links(ctx: SyncContext) -> None:
    """Link each flight to the next one of its plane."""
    with Target(ctx.params(Move).target) as target, Target(ctx.params(Move).target) as reader:
        legs = "select tail, legacy_key from flights order by tail {0}, legacy_key {0}"
        total = target.count("flights")
        target.commit()
        rows = reader.query(legs.format('collate "C"' if target.is_postgres else ""))
        move_rows(
            ctx,
            target,
            legs_of(rows),
            total,
            key=lambda leg: leg[:2],
            write=lambda batch: target.write("links", ((leg[1], leg[2]) for leg in batch if leg[2] is not None)),
        )


def legs_of(rows: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str, str | None]]:
    """Yield (tail, flight, next flight of that plane or None)."""
    before: tuple[str, str] | None = None
    for tail, flight in rows:
        if before is not None:
            yield *before, flight if before[0] == tail else None
        before = tail, flight
    if before is not None:
        yield *before, None
