"""Numbers and states as people read them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.execution.offload_counts import OffloadCounts

REASONS = {
    "blocked": "blocked",
    "condition": "its condition does not hold",
    "deselected": "deselected by --skip",
    "dependency_failed": "a dependency failed",
    "dependency_skipped": "a dependency was skipped",
    "requirement_unmet": "this machine lacks what it requires",
    "pipeline_failed": "the run failed",
    "always_run_budget": "did not start within the always-run budget",
    "cached": "from the cache",
    "module_skipped": "skipped by its body",
    "interrupted": "interrupted",
    "operator": "cancelled by an operator",
    "stopped": "the run was stopped",
    "timeout": "timed out",
    "lease_lost": "it may or may not have happened: at most once",
    "expansion_failed": "its items could not be expanded",
    "right_abandoned": "a right it needs is held by an abandoned body",
    "error": "",
}


def duration_words(seconds: float | None) -> str:
    """Write a duration shortly: ``0.3 s``, ``12 s``, ``3 min 05 s``, ``2 h 10 min``; nothing for ``None``."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size_words(size_bytes: int) -> str:
    """Write a size shortly: ``512 B``, ``1.5 KiB``, ``3.2 GiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Subtract two moments of one machine, for display alone."""
    if not earlier or not later:
        return None
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def reason_words(reason: str | None, text: str | None, blocked_by: str | None) -> str:
    """Say why, in words, with the task that caused it."""
    words = text or REASONS.get(reason or "", reason or "")
    if blocked_by and blocked_by not in words:
        words = f"{words}: {blocked_by}" if words else blocked_by
    return words


def count_words(done: int | None, total: int | None) -> str:
    """Write ``done/total``, or ``done`` alone where the total is unknown, never a guessed percentage (CUR-11)."""
    if done is None:
        return ""
    return f"{done:,}/{total:,}" if total is not None else f"{done:,}"


def counts_words(counts: dict[str, int]) -> str:
    """Write the counts by state that are not zero: ``12 succeeded, 1 failed, 3 skipped``."""
    order = ("succeeded", "failed", "timed_out", "skipped", "cancelled", "running", "queued", "pending")
    return ", ".join(f"{counts[state]:,} {state.replace('_', ' ')}" for state in order if counts.get(state))


def clipped(text: str, width: int) -> str:
    """Cut a text to a width with an ellipsis; control characters are shown escaped."""
    safe = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
    return safe if len(safe) <= width else safe[: max(0, width - 1)] + "…"


def offload_words(counts: OffloadCounts | None) -> str:
    """Write where kernel calls ran: ``12 calls offloaded (48.0 MiB out, 16.0 MiB back), 3 here (below_min_bytes 3)``."""
    if counts is None:
        return ""
    parts = []
    if counts.offloaded:
        moved = f"{size_words(counts.bytes_sent)} out, {size_words(counts.bytes_received)} back"
        parts.append(f"{counts.offloaded:,} calls offloaded ({moved})")
    here = sum(counts.declined.values())
    if here:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.declined.items()))
        parts.append(f"{here:,} here ({reasons})")
    if counts.redispatched:
        parts.append(f"{counts.redispatched:,} sent again")
    return ", ".join(parts)
