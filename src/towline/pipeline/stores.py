"""Which stores a run uses: its state, its artifacts, and the folder of its history (DIST-34, COORD-C87)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from towline.errors.configuration import ConfigurationError
from towline.state.keys import STATE_AT_FILE
from towline.state.opening import open_store

if TYPE_CHECKING:
    from towline.artifacts.store import ArtifactStore
    from towline.clock import Clock
    from towline.execution.run_request import RunRequest
    from towline.pipeline.program import Program
    from towline.state.redis_store import RedisStateStore
    from towline.state.store import StateStore

REDIS = ("redis", "rediss", "redis+unix")


def state_url(program: Program, request: RunRequest) -> str:
    """Where the state of a program lies unless told otherwise.

    ``.towline/<pipeline>`` below the workdir; on the server of a Redis coordinator, for machines that meet there
    need share nothing else (DIST-34).
    """
    if request.options.state:
        return request.options.state
    if request.options.dry_commands:
        return "memory:"  # a resume must never take a dry run for done (CMD-14)
    coordinator = request.distributed.coordinator if request.distributed is not None else None
    if isinstance(coordinator, str) and _is_redis(coordinator):
        return coordinator
    return str(_own_folder(program, request))


def open_state(program: Program, request: RunRequest, clock: Clock) -> StateStore:
    """Open the state of a program: the user's own store, or the one that :func:`state_url` names.

    Raises:
        StateUnsupportedError: No store is known for the URL.
        ConfigurationError: The extra of that store is not installed.
    """
    options = request.options
    if options.state_store is not None and not options.dry_commands:
        own: StateStore = options.state_store(program.name)
        return own
    lease_s = options.worker_timeout_s
    if request.distributed is not None:
        lease_s = request.distributed.worker_timeout_s

    def on_redis(url: str) -> StateStore:
        try:
            from towline.state.redis_store import RedisStateStore
        except ModuleNotFoundError as error:
            advice = "install it with: pip install towline[redis]"
            raise ConfigurationError("state", "redis://...", "given", advice) from error
        return RedisStateStore(url, program.name, durability=options.durability, clock=clock, lease_s=lease_s)

    others = dict.fromkeys(REDIS, on_redis)
    return open_store(state_url(program, request), durability=options.durability, clock=clock, others=others)


def artifact_store(program: Program, request: RunRequest, store: StateStore) -> ArtifactStore:
    """Where artifacts lie: the user's own store; with the state in a folder or on Redis; else beside the workdir.

    Connections to a server are those of ``store``, and end with it.
    """
    own = request.options.artifact_store
    if own is not None:
        return own
    if _is_on_redis(program, request):
        from towline.artifacts.redis_store import LIFE_S, RedisArtifactStore

        state = cast("RedisStateStore", store)
        life_s = request.distributed.redis_key_life_s if request.distributed is not None else LIFE_S
        return RedisArtifactStore(state.calls, state.keys, life_s=life_s)
    from towline.artifacts.directory import DirectoryArtifactStore

    folder = Path(store.name) if os.path.isabs(store.name) else _own_folder(program, request)
    return DirectoryArtifactStore(folder / "artifacts")


def artifacts_server(program: Program, request: RunRequest) -> str:
    """Return the server that has the artifacts, without its password; empty when they lie in a folder, or the user's store."""
    if request.options.artifact_store is not None or not _is_on_redis(program, request):
        return ""
    from towline.access.redis_server import RedisServer

    return RedisServer(state_url(program, request)).shown


def history_root(program: Program, request: RunRequest) -> Path | None:
    """Return the folder with logs and reports: the state's, or the own one of a machine whose state is elsewhere.

    ``None``: nothing is kept, as the state itself is not.
    """
    if request.options.state_store is None or request.options.dry_commands:
        url = state_url(program, request)
        if url.startswith("memory:"):
            return None
        if not _is_redis(url):
            return Path(url)
    return _own_folder(program, request)


def note_state(program: Program, request: RunRequest, run_id: str) -> str | None:
    """Note in this machine's folder where the state of a run lies, for the commands that look from there.

    Returns:
        A warning, when the folder cannot be written.
    """
    root = history_root(program, request)
    try:
        if root is not None and _is_on_redis(program, request):
            from towline.state.elsewhere import write_state_at

            write_state_at(root, state_url(program, request), program.name, run_id)
        elif root is not None:
            os.unlink(root / STATE_AT_FILE)
    except FileNotFoundError:
        pass  # the state has never been elsewhere
    except OSError as error:
        return f"{root} does not say where the state lies, the run goes on: {error}"
    return None


async def state_id(store: StateStore) -> str:
    """Return what names a state alike on every machine that reaches it (DIST-34)."""
    identity = getattr(store, "identity", None)
    return str(store.name if identity is None else await identity())


def refuse_other_state(master: str | None, own: str) -> None:
    """Refuse to work for a master whose state is another one (DIST-34).

    Of two folders it cannot be told: one share may be mounted at two places.

    Raises:
        ConfigurationError: It names both.
    """
    if master and master != own and not (os.path.isabs(master) and os.path.isabs(own)):
        advice = f"the master's state is {master}: give this worker the same --state, or none where it has none"
        raise ConfigurationError("state", own, "this worker's", advice)


def _is_on_redis(program: Program, request: RunRequest) -> bool:
    own = request.options.state_store is not None and not request.options.dry_commands
    return not own and _is_redis(state_url(program, request))


def _is_redis(url: str) -> bool:
    return url.partition("://")[0] in REDIS


def _own_folder(program: Program, request: RunRequest) -> Path:
    return (request.workdir or Path.cwd()) / ".towline" / program.name
