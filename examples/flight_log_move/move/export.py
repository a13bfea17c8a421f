"""Phase export: count the source, then write it to files of the package, each of which becomes an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from move import files
from move.legacy import Legacy
from move.parameters import MONTHS, Move
from move.records import Exported
from towline import SyncContext, module, result_of

# ------------------------------------------------------------------ what is there


@module(name="capture.carriers", phase="export")
def capture_carriers(ctx: SyncContext) -> int:
    return Legacy(ctx.params(Move).legacy).count("airlines")


@module(name="capture.airports", phase="export")
def capture_airports(ctx: SyncContext) -> int:
    return Legacy(ctx.params(Move).legacy).count("airports")


@module(name="capture.planes", phase="export")
def capture_planes(ctx: SyncContext) -> int:
    return Legacy(ctx.params(Move).legacy).count("planes")


@module(name="capture.sheets", phase="export")
def capture_sheets(ctx: SyncContext) -> int:
    return Legacy(ctx.params(Move).legacy).count("sheets")


@module(name="capture.flights", phase="export")
def capture_flights(ctx: SyncContext) -> dict[str, int]:
    """Return the flights of each month."""
    chosen = ctx.params(Move)
    return Legacy(chosen.legacy).flights_per_month(chosen.origin)


@dataclass(frozen=True)
class Inventory:
    """How many rows there are to move; ``flights`` by month, without the months that are left out."""

    carriers: int
    airports: int
    planes: int
    sheets: int
    flights: dict[str, int]


@module(name="analyse.inventory", phase="export")
def inventory(
    ctx: SyncContext,
    carriers: int = result_of(capture_carriers),
    airports: int = result_of(capture_airports),
    planes: int = result_of(capture_planes),
    sheets: int = result_of(capture_sheets),
    flights: dict[str, int] = result_of(capture_flights),
) -> Inventory:
    chosen = MONTHS[: ctx.params(Move).months]
    found = Inventory(carriers, airports, planes, sheets, {month: flights.get(month, 0) for month in chosen})
    ctx.log.info("%s flights in %s months, %s sheets", sum(found.flights.values()), len(found.flights), sheets)
    return found


# ------------------------------------------------------------------ into the package


@module(name="export.carriers", phase="export")
def export_carriers(ctx: SyncContext, found: Inventory = result_of(inventory)) -> Exported:
    return store(ctx, "carriers", Legacy.carriers, found.carriers)


@module(name="export.airports", phase="export")
def export_airports(ctx: SyncContext, found: Inventory = result_of(inventory)) -> Exported:
    return store(ctx, "airports", Legacy.airports, found.airports)


@module(name="export.planes", phase="export")
def export_planes(ctx: SyncContext, found: Inventory = result_of(inventory)) -> Exported:
    return store(ctx, "planes", Legacy.planes, found.planes)


@dataclass(frozen=True)
class ExportedSheets:
    """The list of the sheets, and the folder with their bytes."""

    index: Exported
    contents: Exported


@module(name="export.sheets", phase="export")
def export_sheets(ctx: SyncContext, found: Inventory = result_of(inventory)) -> ExportedSheets:
    chosen = ctx.params(Move)
    index = store(ctx, "sheets", Legacy.sheets, found.sheets)
    folder = Path(chosen.package, "sheets")
    count = files.write_sheets(folder, Legacy(chosen.legacy).sheet_contents())
    return ExportedSheets(index, Exported(count, ctx.artifacts.put("contents", folder)))


@module(name="export.flights", phase="export", matrix={"month": MONTHS})
def export_flights(ctx: SyncContext, month: str, found: Inventory = result_of(inventory)) -> Exported:
    if month not in found.flights:
        return store(ctx, f"flights/{month}", lambda _: iter(()), 0)
    origin = ctx.params(Move).origin
    return store(ctx, f"flights/{month}", lambda legacy: legacy.flights(month, origin), found.flights[month])


def store(ctx: SyncContext, name: str, read: Callable[[Legacy], Iterator[msgspec.Struct]], total: int) -> Exported:
    """Write one file of the package and keep it as an artifact."""
    chosen = ctx.params(Move)
    file = Path(chosen.package, f"{name}.jsonl.gz")

    def counted() -> Iterator[msgspec.Struct]:
        for done, record in enumerate(read(Legacy(chosen.legacy)), start=1):
            yield record
            if done % 5_000 == 0:
                ctx.progress(done, total)

    rows = files.write(file, counted())
    if rows != total:
        raise RuntimeError(f"{name}: the inventory counted {total} rows, {rows} were read; the source has changed")
    ctx.progress(rows, total)
    return Exported(rows, ctx.artifacts.put("rows", file))
