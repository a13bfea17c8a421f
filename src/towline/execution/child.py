"""The process of one body (RUN-30): ``main`` is what its interpreter runs.

Nothing here imports asyncio unless the body is async or moves a cursor: it would double the time to start.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from towline.execution import keeper
from towline.execution.isolation_messages import NOTHING, Raised, Returned, Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from towline.execution.child_line import ChildLine
    from towline.modules.doors import Attempt
    from towline.modules.spec import ModuleSpec


class _Program(Protocol):
    @property
    def params_type(self) -> Any:
        """The declared type of the parameters, or ``None``."""
        ...


class LoadedPipeline(Protocol):
    """What a loaded target is asked for: this room knows no pipeline class."""

    @property
    def program(self) -> _Program: ...

    def specs(self) -> Mapping[str, ModuleSpec]:
        """All modules by name."""
        ...


def main() -> None:
    """Keep a body that talks over the two descriptors named on the command line: frames, control."""
    gc.disable()  # loading the program drops nothing: a twentieth of the start would go into looking for it
    frames, control = int(sys.argv[1]), int(sys.argv[2])
    keeper.keep(control, lambda: run_body(frames))


def run_body(frames: int) -> None:
    """Take the ``Start`` message, run the body that it names, and send how it ended."""
    from towline.execution.child_line import ChildLine

    os.set_inheritable(frames, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    line = ChildLine(frames)
    start = line.wait_for_start()
    line.send(_ended(line, start))
    sys.stdout.flush()
    sys.stderr.flush()


def _ended(line: ChildLine, start: Start) -> Returned | Raised:
    """Run the body; whatever it raises is reported."""
    try:
        return Returned(_run(line, start))
    except BaseException as error:  # noqa: BLE001 - how the body ended is the node's to judge
        return _raised(line, error)


def _raised(line: ChildLine, error: BaseException) -> Raised:
    from towline.modules.retry import Skip
    from towline.serialization.exceptions import record_of

    if isinstance(error, Skip):
        return Raised(kind="skip", error=record_of(error))
    if isinstance(error, KeyboardInterrupt):
        return Raised(kind="interrupt", error=record_of(error))
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and isinstance(error, asyncio.CancelledError) and line.is_ending:
        return Raised(kind="cancelled", error=record_of(error))
    return Raised(kind="error", error=record_of(error))


def _run(line: ChildLine, start: Start) -> msgspec.Raw:
    from towline.execution.child_doors import ChildDoors
    from towline.execution.isolation_inputs import decode_inputs, decode_item
    from towline.modules.target import load_target

    pipeline: LoadedPipeline = load_target(start.target)
    specs = pipeline.specs()
    spec: ModuleSpec = specs[start.attempt.module]
    workdir = Path(start.attempt.workdir)
    attempt = _attempt(start, spec, pipeline)
    line.attempt = attempt
    doors = ChildDoors(line, start.attempt.plan_id)
    doors.listen_to_logging(start.log_level)
    inputs = decode_inputs(spec, specs, start.inputs, workdir)
    attempt.item = decode_item(spec, start.item_place, start.item, workdir)
    gc.enable()
    value = _call(line, doors, spec, attempt, inputs)
    return encode_result(spec, value, workdir)


def encode_result(spec: ModuleSpec, value: Any, workdir: Path) -> msgspec.Raw:
    """Encode what the body returned by its declared type.

    Raises:
        ResultTypeError, SerializationError, ResultTooLargeError: It is not that; they name the module.
    """
    import msgspec

    from towline.errors.values import ResultTooLargeError, ResultTypeError, SerializationError
    from towline.serialization.codec import codec_for

    try:
        return msgspec.Raw(codec_for(spec.result_type).encode(value, workdir=workdir))
    except (ResultTypeError, SerializationError, ResultTooLargeError) as error:
        raise error.for_module(spec.name) from error.__cause__


def _attempt(start: Start, spec: ModuleSpec, pipeline: LoadedPipeline) -> Attempt:
    from towline.modules.doors import Attempt

    facts = start.attempt
    matrix = {axis: list((spec.matrix or {})[axis])[place] for axis, place in facts.matrix.items()}
    params = None
    if bytes(start.params) != bytes(NOTHING):
        from towline.serialization.private import private_codec_for

        params = private_codec_for(pipeline.program.params_type).decode(start.params)
    return Attempt(
        task_id=facts.task_id,
        module=facts.module,
        key=facts.key,
        run_id=facts.run_id,
        attempt=facts.attempt,
        epoch=facts.epoch,
        worker_id=facts.worker_id,
        workdir=Path(facts.workdir),
        matrix=matrix,
        params=params,
    )


def _call(line: ChildLine, doors: Any, spec: ModuleSpec, attempt: Attempt, inputs: dict[str, Any]) -> Any:
    from towline.modules.awaiting import refuse_unawaited
    from towline.modules.context import Context, SyncContext
    from towline.modules.current import current_attempt

    current_attempt.set(attempt)
    if spec.sync:
        return spec.call(SyncContext(attempt, doors), inputs, attempt.item)
    import asyncio

    async def on_loop() -> Any:
        line.enter_loop(asyncio.get_running_loop(), asyncio.current_task())
        value = await spec.call(Context(attempt, doors), inputs, attempt.item)
        refuse_unawaited(attempt)
        return value

    return asyncio.run(on_loop())
