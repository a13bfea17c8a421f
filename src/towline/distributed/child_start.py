"""What the master tells a worker process that it starts: one line of JSON on its standard input (DIST-10)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from towline.modules.target import TargetRef

TOKEN_VARIABLE: Final = "TOWLINE_WORKER_TOKEN"
"""Carries the token of the run, which an argument or a file would show to others. Taken out before a body runs."""
SECRETS_VARIABLE: Final = "TOWLINE_WORKER_SECRETS"
"""Carries the secret parameters of the run likewise, as JSON by name."""


class ChildStart(msgspec.Struct, frozen=True, kw_only=True):
    """Who the process is, where its master listens, and how it works.

    ``options``: what the run's options say other than the program's own, of those that text can carry.
    ``distributed``: limits of the run, by the names of ``DistributedOptions``.
    """

    target: TargetRef
    port: int
    run_id: str
    worker_id: str
    workdir: str
    options: dict[str, Any] = {}
    distributed: dict[str, Any] = {}
    capabilities: tuple[str, ...] = ()
