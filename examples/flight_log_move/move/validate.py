"""The last task: is what the target holds what the source held?"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from move.export import ExportedSheets, export_carriers, export_flights, export_sheets
from move.load import flight_row, import_links
from move.parameters import Move
from move.prepare import prepare_airports, prepare_planes, received
from move.records import Exported, Flight, Sheet
from move.target import Target
from towline import SyncContext, module, result_of

SAMPLE = 97
"""Each 97th flight is compared value by value."""


@module(name="validate.parity", phase="import", after=[import_links], timeout=0)
def validate_parity(
    ctx: SyncContext,
    carriers: Exported = result_of(export_carriers),
    airports: Exported = result_of(prepare_airports),
    planes: Exported = result_of(prepare_planes),
    sheets: ExportedSheets = result_of(export_sheets),
    months: list[Exported] = result_of(export_flights),
) -> str:
    """Compare counts, sampled flights and the bytes of every sheet; return the digest of the target.

    The report is written whether it passes or not.

    Raises:
        ValueError: Something differs; the report says what.
    """
    chosen = ctx.params(Move)
    with Target(chosen.target) as target:
        expected = {
            "carriers": carriers.rows,
            "airports": airports.rows,
            "planes": planes.rows,
            "sheets": sheets.index.rows,
            "flights": sum(month.rows for month in months) - target.count("skipped"),
        }
        found = {table: target.count(table) for table in expected}
        wrong = [f"{table}: {found[table]} rows for {rows}" for table, rows in expected.items() if found[table] != rows]
        wrong += wrong_sheets(ctx, target, sheets)
        sampled, wrong_flights = compare_flights(ctx, target, months)
        wrong += wrong_flights
        digest = target.digest()
    skipped = sum(month.rows for month in months) - found["flights"]
    report = {"digest": digest, "rows": found, "skipped": skipped, "sampled": sampled, "wrong": wrong}
    Path(chosen.package, "validation.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if wrong:
        raise ValueError(f"{len(wrong)} differences between source and target, first: {wrong[0]}")
    ctx.log.info("%s flights, digest %s", found["flights"], digest)
    return digest


def wrong_sheets(ctx: SyncContext, target: Target, sheets: ExportedSheets) -> list[str]:
    """Digest the bytes of every sheet in the target."""
    stored = {
        key: sha256(content or b"").hexdigest() for key, content in target.query("select key, content from sheets")
    }
    listed = received(ctx, sheets.index.file, Sheet)
    return [f"sheet {sheet.key}: other bytes" for sheet in listed if stored.get(sheet.key) != sheet.sha256]


def compare_flights(ctx: SyncContext, target: Target, months: list[Exported]) -> tuple[int, list[str]]:
    """Compare each 97th flight with its row; return how many there were, and those that differ."""
    sheets = {key for (key,) in target.query("select key from sheets")}
    skipped = {key for (key,) in target.query("select legacy_key from skipped")}
    sampled, wrong = 0, []
    for month in months:
        for number, flight in enumerate(received(ctx, month.file, Flight)):
            if number % SAMPLE == 0 and flight.key not in skipped:
                sampled += 1
                row: tuple[Any, ...] | None = next(
                    target.query("select * from flights where legacy_key = ?", flight.key), None
                )
                if row != flight_row(flight, sheets):
                    wrong.append(f"flight {flight.key}: other values")
    return sampled, wrong
