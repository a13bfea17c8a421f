"""One screen of text about an executed graph, and the story of one call, as people read them (section 13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from towline.offload.records import GraphResult

START_HINT = "towline offload worker MODULE --master HOST:PORT"


def summarise(result: GraphResult) -> str:
    """Say how many calls went where, and for each reason to stay how many, with one detail."""
    local = sum(call.state == "succeeded" and call.ran_on == "local" for call in result.calls)
    count = len(result.calls)
    lines = [
        f"{result.graph}: {count} call{'' if count == 1 else 's'}, {result.offloaded} offloaded, {local} local "
        f"in {result.elapsed_s:.2f} s"
    ]
    if result.redispatched:
        lines[0] += f", {result.redispatched} dispatched again"
    details = {call.decline.reason: call.decline.detail for call in reversed(result.calls) if call.decline is not None}
    for reason, number in sorted(result.declined.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"  {number}  {reason:<20} {details.get(reason, '')}".rstrip())
    states = Counter(call.state for call in result.calls if call.state != "succeeded")
    lines += [f"  {number}  {state}" for state, number in sorted(states.items())]
    if result.workers == 0 and result.declined:
        lines.append(f"  no worker is connected; start one with: {START_HINT}")
    return "\n".join(lines)


class CallExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call ran where it ran: decisions with costs, attempts with fences, the frames about it, its commit."""

    number: int
    kernel: str
    state: str = ""
    ran_on: str = "local"
    attempts: int = 0
    decline: str | None = None
    detail: str = ""
    decisions: tuple[Mapping[str, object], ...] = ()
    frames: tuple[str, ...] = ()
    commit: Mapping[str, object] = {}

    def to_json(self) -> str:
        """Return it as JSON."""
        return msgspec.json.encode(self).decode()

    def text(self) -> str:
        """Return it as lines for people."""
        where = f"ran on {self.ran_on}" if self.decline is None else f"stayed here: {self.decline}"
        lines = [
            f"call {self.number} of {self.kernel}: {self.state}, {where}{f' ({self.detail})' if self.detail else ''}"
        ]
        for decision in self.decisions:
            if "fence" in decision:
                lines.append(f"  attempt {decision['attempt']} on {decision['worker']}, fence {decision['fence']}")
            elif "failed" in decision:
                lines.append(f"  came to nothing: {decision['failed']}")
            else:
                lines.append(f"  chose {decision['chosen']}")
                for title, table in (("cost", decision["costs"]), ("left out", decision["left_out"])):
                    if isinstance(table, Mapping):
                        lines += [f"    {title} {worker}: {value}" for worker, value in table.items()]
        lines += [f"  {frame}" for frame in self.frames]
        return "\n".join(lines)
