"""Results in memory and in the store, and the inputs that are made of them (RUN-10, MOD-13, MOD-18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.modules.outcomes import Finding, Outcome, Reason, Skipped, Succeeded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from towline.planning.graph import BuiltPlan, InputUse
    from towline.planning.records import PlannedTask
    from towline.serialization.codec import Codec
    from towline.state.results import Results


class ResultDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stored result: the encoded value, absent for ``None``, and the findings of the task."""

    value: msgspec.Raw | None = None
    findings: tuple[Finding, ...] = ()


encode_document = msgspec.json.Encoder().encode
decode_document = msgspec.json.Decoder(ResultDocument).decode


class Values:
    """The outcomes of this run by position in the plan, and the values behind those kept from earlier ones.

    ``copies``: inputs are decoded anew for each reader, as they are where values travel (strict values).
    """

    def __init__(
        self, built: BuiltPlan, codecs: Mapping[str, Codec | None], results: Results, *, copies: bool
    ) -> None:
        self._built, self._codecs, self._results, self._copies = built, codecs, results, copies
        self._tasks: Sequence[PlannedTask] = built.tasks
        self.outcomes: dict[int, Outcome[Any]] = {}
        self._payloads: dict[int, bytes] = {}

    def keep(self, position: int, outcome: Outcome[Any], payload: bytes | None) -> None:
        """Remember how a task ended; ``payload`` is its encoded value."""
        self.outcomes[position] = outcome
        if self._copies and payload is not None:
            self._payloads[position] = payload

    def inputs(self, position: int) -> dict[str, Any] | None:
        """Give the inputs of a task, or ``None`` when one of them has to be read from the store first."""
        uses = self._built.inputs[position]
        if not uses:
            return {}
        gathered: dict[str, Any] = {}
        for use in uses:
            for one in use.positions:
                if not self._is_here(one):
                    return None
            gathered[use.param] = self._gather(use)
        return gathered

    async def load_inputs(self, position: int) -> dict[str, Any]:
        """Read the kept results that a task needs, then give its inputs.

        Raises:
            ResultCorruptError: A stored result does not match its digest (PLAN-37).
        """
        for use in self._built.inputs[position]:
            for one in use.positions:
                await self.load(one)
        inputs = self.inputs(position)
        assert inputs is not None
        return inputs

    def _is_here(self, position: int) -> bool:
        if position in self.outcomes:
            return True
        children = self._built.children.get(position)
        if children is not None:
            return all(child in self.outcomes for child in children)
        return self._tasks[position].state != "succeeded"

    async def load(self, position: int) -> Outcome[Any]:
        """Give the outcome of a task, from memory or as kept from an earlier run."""
        known = self.outcomes.get(position)
        if known is not None:
            return known
        children = self._built.children.get(position)
        if children is not None:
            for child in children:
                await self.load(child)
        outcome = await self._kept(position)
        self.outcomes[position] = outcome
        return outcome

    async def _kept(self, position: int) -> Outcome[Any]:
        row = self._tasks[position]
        if row.state != "succeeded":
            return _as_outcome(row)
        value: Any = None
        findings: tuple[Finding, ...] = ()
        if row.result_digest is not None:
            document = decode_document(await self._results.read(row.id, row.result_digest, row.result_at))
            findings = document.findings
            codec = self._codecs.get(row.module)
            if document.value is not None and codec is not None:
                value = codec.decode(bytes(document.value))
                if self._copies:
                    self._payloads[position] = bytes(document.value)
        return Succeeded(
            value,
            task_id=row.id,
            attempts=row.attempts,
            epoch=row.epoch,
            worker_id=row.worker,
            artifacts=row.artifacts or (),
            findings=findings,
            origin="kept",
        )

    # -------------------------------------------------------------- one input

    def _gather(self, use: InputUse) -> Any:
        if use.kind == "outcome":
            outcomes = [self._outcome(one) for one in self._spread(use)]
            return outcomes if use.many else outcomes[0]
        if use.many:
            return [self._value(one) for one in self._spread(use)]
        return self._value(use.positions[0]) if use.positions else None

    def _spread(self, use: InputUse) -> list[int]:
        """Put the children of an ``each`` module in the place of their join."""
        spread: list[int] = []
        for one in use.positions:
            children = self._built.children.get(one)
            spread += [one] if children is None or not use.many else children
        return spread

    def _outcome(self, position: int) -> Outcome[Any]:
        return self.outcomes.get(position) or _as_outcome(self._tasks[position])

    def _value(self, position: int) -> Any:
        outcome = self.outcomes.get(position)
        if type(outcome) is not Succeeded:
            return None
        if self._copies:
            payload = self._payloads.get(position)
            codec = self._codecs.get(self._tasks[position].module)
            if payload is not None and codec is not None:
                return codec.decode(payload)
        return outcome.value

    def items_of(self, position: int) -> Any:
        """The value of an ``each`` source, for its expansion."""
        return self._value(position)


def _as_outcome(row: PlannedTask) -> Outcome[Any]:
    """Say how a task ended in an earlier run, or that it does not count yet (a blocked gate, PLAN-52)."""
    from towline.modules.outcomes import Cancelled, ErrorRecord, Failed, TimedOut

    facts: dict[str, Any] = {
        "task_id": row.id,
        "attempts": row.attempts,
        "epoch": row.epoch,
        "worker_id": row.worker,
        "reason": Reason(code=row.reason or "", text=row.reason_text or "", blocked_by=row.blocked_by),
    }
    if row.state in ("failed", "timed_out"):
        shown = row.error
        error = ErrorRecord(type_name=shown.type if shown else "Error", text=shown.text if shown else "")
        kind = Failed if row.state == "failed" else TimedOut
        return kind(error, ignored=row.ignored, **facts)
    if row.state == "cancelled":
        return Cancelled(**facts)
    return Skipped(**facts)
