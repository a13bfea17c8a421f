"""The layout as keys: one spelling for every store (DESIGN section 5, STATE-04, STATE-05). Pure."""

from __future__ import annotations

from typing import Final

from towline.identity import segment

PLAN_KEY: Final = "plan.json"
JOURNAL_KEY: Final = "plan.journal"
RESULTS_KEY: Final = "results.jsonl"
OWNER_KEY: Final = "owner.lock"
STATE_AT_FILE: Final = "state-at.json"
"""In the folder of a pipeline whose state lies on a server: no key of the store."""

TASK_FOLDERS: Final = ("cursors", "steps", "results", "executions")
"""Folders whose documents belong to one task each."""

_PLAN_LOCK: Final = "~plan"  # no segment starts with a tilde


def cursor_key(task_id: str) -> str:
    return f"cursors/{segment(task_id)}.json"


def skips_key(task_id: str) -> str:
    return f"cursors/{segment(task_id)}.skips.jsonl"


def step_prefix(task_id: str) -> str:
    return f"steps/{segment(task_id)}/"


def step_key(task_id: str, step: str) -> str:
    return f"{step_prefix(task_id)}{segment(step)}.json"


def result_key(task_id: str) -> str:
    return f"results/{segment(task_id)}.json"


def execution_key(task_id: str) -> str:
    return f"executions/{segment(task_id)}.json"


def checked_key(key: str) -> str:
    """Return the key if it is a safe relative path (STATE-04).

    Raises:
        ValueError: It is absolute, has an empty segment, ``.``, ``..``, a backslash, colon or control character.
    """
    for part in key.split("/"):
        if part in ("", ".", "..") or "\\" in part or ":" in part or not part.isprintable():
            raise ValueError(f"{key!r} is not a state key: segments are separated by one '/' and none is '..'")
    return key


def lock_name(key: str) -> str:
    """Return the name of the lock that guards a key: that of its task, or the plan's (STATE-15)."""
    folder, _, rest = key.partition("/")
    if folder not in TASK_FOLDERS:
        return _PLAN_LOCK
    name = rest.partition("/")[0]
    return name.removesuffix(".skips.jsonl") if name.endswith(".skips.jsonl") else name.removesuffix(".json")
