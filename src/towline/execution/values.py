"""Results in memory and in the store, and the inputs that are made of them (RUN-10, MOD-13, MOD-18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from towline.errors.state import ResultCorruptError
from towline.modules.outcomes import Finding, Outcome, Reason, Skipped, Succeeded
from towline.state.results import ResultPlace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePath

    from towline.artifacts.records import ArtifactRef
    from towline.planning.built import BuiltPlan, TaskInput
    from towline.planning.records import PlannedTask
    from towline.serialization.codec import Codec
    from towline.state.results import ResultFile


class ResultDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stored result: the encoded value, and the findings of the task."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    findings: tuple[Finding, ...] = ()


encode_document = msgspec.json.Encoder().encode
decode_document = msgspec.json.Decoder(ResultDocument).decode


class Values:
    """The outcomes of this run by position in the plan, and the values behind those kept from earlier ones.

    ``copies``: inputs are decoded anew for each reader, as they are where values travel (strict values).
    """

    def __init__(
        self,
        built: BuiltPlan,
        tasks: Sequence[PlannedTask],
        codecs: Mapping[str, Codec | None],
        results: ResultFile,
        *,
        copies: bool,
        workdir: PurePath,
    ) -> None:
        self._built, self._tasks, self._codecs, self._results, self._copies = built, tasks, codecs, results, copies
        self._workdir, self._inputs = workdir, built.inputs
        self.outcomes: dict[int, Outcome[Any]] = {}
        self._payloads: dict[int, bytes] = {}
        self._children: dict[int, list[int]] = {}
        self._join_of: dict[int, int] = {}
        for position in range(len(built.tasks), len(tasks)):
            self._adopt(position)

    def _adopt(self, position: int) -> None:
        parent = self._tasks[position].parent
        assert parent is not None
        join = self._built.index[parent]
        self._join_of[position] = join
        self._children.setdefault(join, []).append(position)

    def grown(self, join: int, positions: Sequence[int]) -> None:
        """Take the children of an ``each`` module, in item order; they stand at the end of the plan."""
        self._children[join] = list(positions)
        for position in positions:
            self._join_of[position] = join

    def task(self, position: int) -> PlannedTask:
        """The row of a task."""
        return self._tasks[position]

    def joined(self, position: int) -> int:
        """The place in the built plan whose wiring a task has: its join's, or its own."""
        return self._join_of.get(position, position)

    def tasks_of(self, module: str) -> list[int]:
        """The tasks of a module in key order, children of an ``each`` module in item order."""
        places = self._built.tasks_of.get(module, ())
        return [one for place in places for one in self._children.get(place, [place])]

    def children_of(self, position: int) -> Sequence[int]:
        """The children of a join, in item order; none of any other task."""
        return self._children.get(position, ())

    def keep(self, position: int, outcome: Outcome[Any], payload: bytes | None) -> None:
        """Remember how a task ended; ``payload`` is its encoded value."""
        self.outcomes[position] = outcome
        if self._copies and payload is not None:
            self._payloads[position] = payload

    def inputs(self, position: int) -> dict[str, Any] | None:
        """Give the inputs of a task, or ``None`` when one of them has to be read from the store first."""
        uses = self._inputs[self._join_of.get(position, position)]
        if not uses:
            return {}
        gathered: dict[str, Any] = {}
        for use in uses:
            for one in use.tasks:
                if not self._is_here(one):
                    return None
            gathered[use.param] = self._gather(use, self._tasks[position].key)
        return gathered

    async def load_inputs(self, position: int) -> dict[str, Any]:
        """Read the kept results that a task needs, then give its inputs.

        Raises:
            ResultCorruptError: A stored result does not match its digest (PLAN-37).
        """
        for use in self._built.inputs[self.joined(position)]:
            for one in use.tasks:
                await self.load(one)
        inputs = self.inputs(position)
        assert inputs is not None
        return inputs

    def _is_here(self, position: int) -> bool:
        # Children first: a join ends in this run while some of its children were kept from an earlier one.
        children = self._children.get(position)
        if children is not None:
            return all(child in self.outcomes for child in children)
        if position in self.outcomes:
            return True
        return self._tasks[position].state != "succeeded"

    async def load(self, position: int) -> Outcome[Any]:
        """Give the outcome of a task, from memory or as kept from an earlier run."""
        for child in self._children.get(position, ()):
            await self.load(child)
        known = self.outcomes.get(position)
        if known is not None:
            return known
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
            data = await self._results.read(row.id, ResultPlace(row.result_digest, row.result_at))
            if data is None:
                raise ResultCorruptError("results", row.id, row.result_digest, "nothing", row.result_at)
            document = decode_document(data)
            findings = document.findings
            codec = self._codecs.get(row.module)
            encoded = bytes(document.value)
            if encoded != b"null" and codec is not None:
                value = codec.decode(encoded, workdir=self._workdir)
                if self._copies:
                    self._payloads[position] = encoded
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

    def sources(self, position: int) -> dict[str, list[str]]:
        """The modules behind each input of a task, in the order of its values."""
        uses = self._built.inputs[self.joined(position)]
        return {use.param: [self._tasks[one].module for one in self._spread(use)] for use in uses}

    # -------------------------------------------------------------- one input

    def _gather(self, use: TaskInput, key: str | None) -> Any:
        if use.many:
            spread = self._spread(use)
            return [self.outcome(one) if use.use == "outcome" else self._value(one) for one in spread]
        if not use.tasks:
            return None
        one = self._paired(use.tasks[0], key)
        return self.outcome(one) if use.use == "outcome" else self._value(one)

    def _paired(self, position: int, key: str | None) -> int:
        """Of an ``each`` module, the child with the reader's own key (MOD-19)."""
        for child in self._children.get(position, ()):
            if self._tasks[child].key == key:
                return child
        return position

    def _spread(self, use: TaskInput) -> list[int]:
        """Put the children of an ``each`` module in the place of their join."""
        spread: list[int] = []
        for one in use.tasks:
            children = self._children.get(one)
            spread += [one] if children is None else children
        return spread

    def outcome(self, position: int) -> Outcome[Any]:
        """How a task ended, in this run or before."""
        return self.outcomes.get(position) or _as_outcome(self._tasks[position])

    def _value(self, position: int) -> Any:
        outcome = self.outcomes.get(position)
        if type(outcome) is not Succeeded:
            return None
        if self._copies:
            payload = self._payloads.get(position)
            codec = self._codecs.get(self._tasks[position].module)
            if payload is not None and codec is not None:
                return codec.decode(payload, workdir=self._workdir)
        return outcome.value

    def artifacts_of(self, position: int) -> Sequence[ArtifactRef]:
        """The artifact references of a task's accepted outcome, or of the kept one."""
        outcome = self.outcomes.get(position)
        return outcome.artifacts if outcome is not None else self._tasks[position].artifacts or ()

    def items_of(self, position: int) -> Any:
        """The value of an ``each`` source, for its expansion."""
        return self._value(position)


def _as_outcome(row: PlannedTask) -> Outcome[Any]:
    """Say how a task ended in an earlier run, or that it does not count yet (a blocked gate, PLAN-52)."""
    from towline.modules.outcomes import Cancelled, Failed, TimedOut
    from towline.serialization.errors_record import ErrorRecord

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
