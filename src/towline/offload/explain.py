"""What happened to a call, kept for the last few thousand of them (OFF-953). Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from towline.offload.records import CallExplanation, CallNumber

if TYPE_CHECKING:
    from towline.offload.calls import Call

REMEMBERED_CALLS = 4_096
REMEMBERED_FRAMES = 64


class _Story:
    """Plain tuples while it happens; texts are made for the few that are asked for."""

    __slots__ = ("decisions", "frames", "left_out")

    def __init__(self) -> None:
        self.decisions: list[tuple[tuple[str, ...], tuple[object, ...]]] = []
        self.frames: list[tuple[float, str, str]] = []
        self.left_out: dict[str, str] = {}


_CHOICE = ("chosen", "left_out", "costs")
_DISPATCH = ("at", "attempt", "fence", "worker")
_FAILURE = ("at", "failed")


class Explanations:
    """Stories of calls by number; the oldest is dropped when there are too many."""

    def __init__(self) -> None:
        self._stories: OrderedDict[int, _Story] = OrderedDict()

    def choice(self, call: Call, left_out: dict[str, str], costs: dict[str, float], chosen: str) -> None:
        """Note a decision: who was left out and why, what the others would cost, what came of it."""
        story = self._story(call.number)
        entry = (_CHOICE, (chosen, left_out, costs))
        if story.decisions and story.decisions[-1] == entry:
            return
        story.left_out = left_out
        if len(story.decisions) < REMEMBERED_FRAMES:
            story.decisions.append(entry)

    def dispatched(self, call: Call, at: float, fence: int, worker: str) -> None:
        """Note a dispatch."""
        self._story(call.number).decisions.append((_DISPATCH, (at, call.attempts, fence, worker)))

    def failed(self, call: Call, at: float, why: str) -> None:
        """Note an attempt that came to nothing."""
        self._story(call.number).decisions.append((_FAILURE, (at, why)))

    def frame(self, call: Call, at: float, kind: str, verdict: str) -> None:
        """Note a frame about the call."""
        frames = self._story(call.number).frames
        frames.append((at, kind, verdict))
        if len(frames) > REMEMBERED_FRAMES:
            del frames[0]

    def left_out(self, call: Call) -> tuple[str, ...]:
        """Say why each worker was left out at the last decision."""
        story = self._stories.get(call.number)
        return tuple(f"{worker}: {why}" for worker, why in story.left_out.items()) if story is not None else ()

    def about(self, call: Call) -> CallExplanation:
        """Tell the story of a call."""
        story = self._stories.get(call.number) or _Story()
        outcome = call.outcome()
        return CallExplanation(
            number=CallNumber(call.number), kernel=call.kernel_name,
            state=outcome.state if call.is_final else call.phase.name.lower(), ran_on=str(outcome.ran_on),
            attempts=call.attempts, decline=outcome.decline.reason if outcome.decline is not None else None,
            detail=outcome.decline.detail if outcome.decline is not None else "", decisions=tuple(dict(zip(names, values, strict=True)) for names, values in story.decisions),
            frames=tuple(f"{at:.6f} {kind} {verdict}" for at, kind, verdict in story.frames), commit={"fence": call.fence, "versions": list(call.reserved)},
        )  # fmt: skip

    def _story(self, number: int) -> _Story:
        story = self._stories.get(number)
        if story is None:
            story = self._stories[number] = _Story()
            if len(self._stories) > REMEMBERED_CALLS:
                self._stories.popitem(last=False)
        return story
