"""The contract kit for state stores: what every ``StateStore`` keeps (``planning.md`` section 6.1).

Write a :class:`StoreEnv` for your store, then run every case on a fresh one:

    @pytest.mark.parametrize("case", store_cases(), ids=str)
    def test_contract(case): asyncio.run(case.run(MyEnv()))
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from towline.errors.state import (
    LeaseLostError,
    OwnershipLostError,
    PlanOwnedError,
    StateTooLargeError,
    VersionConflictError,
)
from towline.state.planfile import PlanFile
from towline.state.store import ABSENT, ANYTHING, DOCUMENT_LIMIT_BYTES, Fence, Owner
from towline.testing.cases import Case, Kit
from towline.testing.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from towline.state.store import StateStore


class StoreEnv(Protocol):
    """One fresh, empty place of the store under test; its author writes this."""

    async def store(self) -> StateStore:
        """Open the place once more, as another process would."""
        ...

    async def aclose(self) -> None: ...


_kit: Kit[StoreEnv] = Kit()


def store_cases(*, skip: Collection[str] = ()) -> Sequence[Case[StoreEnv]]:
    """Return all cases but those of the skipped clauses."""
    return _kit.cases(skip)


def an_owner(name: str = "m-1") -> Owner:
    """Make an owner for a test."""
    return Owner(id=name, host="build-4", pid=4112, run_id="r-1", since="2026-03-01T10:00:00.000Z")


@_kit.case
@clause("STATE-01")
async def one_of_many_writers_wins(env: StoreEnv) -> None:
    stores = [await env.store() for _ in range(5)]

    async def write(number: int) -> str | VersionConflictError:
        try:
            return await stores[number % 5].write("cursors/a.json", b"%d" % number, ABSENT)
        except VersionConflictError as conflict:
            return conflict

    outcomes = await asyncio.gather(*(write(number) for number in range(50)))

    versions = [outcome for outcome in outcomes if isinstance(outcome, str)]
    entry = await stores[0].read("cursors/a.json")
    assert entry is not None
    assert versions == [entry.version], "exactly one write has the document's version"
    assert entry.data == b"%d" % outcomes.index(versions[0])
    assert all(o.found == entry.version for o in outcomes if isinstance(o, VersionConflictError))


@_kit.case
@clause("STATE-01")
async def a_version_is_replaced_once(env: StoreEnv) -> None:
    one, two = await env.store(), await env.store()
    first = await one.write("steps/a/b.json", b"1", ABSENT)
    second = await two.write("steps/a/b.json", b"2", first)

    await _refused(VersionConflictError, one.write("steps/a/b.json", b"3", first))
    await _refused(VersionConflictError, one.delete("steps/a/b.json", first))

    entry = await one.read("steps/a/b.json")
    assert entry is not None
    assert (entry.data, entry.version) == (b"2", second)
    await one.delete("steps/a/b.json", second)
    await one.delete("steps/a/b.json", ANYTHING)
    assert await two.read("steps/a/b.json") is None


@_kit.case
@clause("STATE-02")
async def a_reader_sees_whole_documents(env: StoreEnv) -> None:
    writer, reader = await env.store(), await env.store()
    versions = [bytes([letter]) * 50_000 for letter in b"abcdef"]
    seen: list[bytes] = []

    async def write() -> None:
        for data in versions:
            await writer.write("cursors/a.json", data, ANYTHING)
            await asyncio.sleep(0)

    writing = asyncio.ensure_future(write())
    while not writing.done():
        entry = await reader.read("cursors/a.json")
        if entry is not None:
            seen.append(entry.data)
        await asyncio.sleep(0)
    await writing
    assert seen
    assert all(data in versions for data in seen)


@_kit.case
@clause("STATE-03")
async def a_former_owner_is_refused(env: StoreEnv) -> None:
    one, two = await env.store(), await env.store()
    former = await one.acquire(an_owner("m-1"))
    plan = PlanFile(one, former)
    await plan.write_snapshot(_chunks(former.epoch), generation=1, plan_id=_plan_id(former.epoch), owner_epoch=1)
    await one.append("runs/r-1/events.jsonl", b"{}\n", Fence(former.epoch))
    await former.release()
    current = await two.acquire(an_owner("m-2"))

    await _refused(OwnershipLostError, one.append("runs/r-1/events.jsonl", b"{}\n", Fence(former.epoch)))
    await _refused(OwnershipLostError, one.write("runs/r-1/report.json", b"{}", ANYTHING, Fence(former.epoch)))
    await _refused(
        OwnershipLostError,
        plan.write_snapshot(_chunks(1), generation=2, plan_id=_plan_id(1), owner_epoch=former.epoch),
    )
    await two.append("runs/r-1/events.jsonl", b"{}\n", Fence(current.epoch))

    entry = await two.read("runs/r-1/events.jsonl")
    assert entry is not None
    assert entry.data == b"{}\n{}\n"


@_kit.case
@clause("STATE-03")
async def an_older_claim_is_refused(env: StoreEnv) -> None:
    store = await env.store()
    await store.write("cursors/a.json", b'{"plan_id":"00000002-aa","epoch":3}', ABSENT)

    for older in (Fence(2, "a", "00000002-aa"), Fence(9, "a", "00000001-ff")):
        await _refused(LeaseLostError, store.append("cursors/a.skips.jsonl", b"{}\n", older))
        await _refused(LeaseLostError, store.write("steps/a/b.json", b"{}", ANYTHING, older))
    for current in (Fence(3, "a", "00000002-aa"), Fence(1, "a", "00000003-00"), Fence(1, "other", "00000001-00")):
        await store.append("cursors/a.skips.jsonl", b"{}\n", current)

    entry = await store.read("cursors/a.skips.jsonl")
    assert entry is not None
    assert entry.data == b"{}\n" * 3
    assert await store.read("steps/a/b.json") is None


@_kit.case
@clause("STATE-04")
async def keys_are_safe_relative_paths(env: StoreEnv) -> None:
    store = await env.store()
    for key in ("../a", "a/../b", "/etc/x", "a//b", "", "a/", "./a", "a\\b", "c:/x", "a\nb"):
        await _refused(ValueError, store.write(key, b"x", ANYTHING))
        await _refused(ValueError, store.read(key))
        await _refused(ValueError, store.delete(key, ANYTHING))

    for key in ("steps/b/x.json", "cursors/a.json", "cursors/a.skips.jsonl", "steps/a/y.json"):
        await store.write(key, b"x", ABSENT)
    assert [key async for key in store.list("steps/")] == ["steps/a/y.json", "steps/b/x.json"]
    assert [key async for key in store.list("cursors/a.")] == ["cursors/a.json", "cursors/a.skips.jsonl"]
    assert [key async for key in store.list("results/")] == []


@_kit.case
@clause("STATE-06")
async def a_document_above_the_limit_is_refused(env: StoreEnv) -> None:
    store = await env.store()
    large = bytes(DOCUMENT_LIMIT_BYTES + 1)

    await _refused(StateTooLargeError, store.write("steps/a/b.json", large, ANYTHING))
    await _refused(StateTooLargeError, store.append("cursors/a.skips.jsonl", large, Fence(1, "a", "")))

    assert [key async for key in store.list("")] == []


@_kit.case
@clause("STATE-08")
async def a_living_owner_is_named(env: StoreEnv) -> None:
    one, two = await env.store(), await env.store()
    await one.acquire(an_owner("m-1"))

    error = await _refused(PlanOwnedError, two.acquire(an_owner("m-2")))

    assert isinstance(error, PlanOwnedError)
    assert (error.owner_id, error.run_id, error.host, error.pid) == ("m-1", "r-1", "build-4", 4112)
    assert error.since == "2026-03-01T10:00:00.000Z"


@_kit.case
@clause("STATE-09")
async def owner_epochs_only_grow(env: StoreEnv) -> None:
    epochs: list[int] = []
    for number in range(4):
        store = await env.store()
        ownership = await store.acquire(an_owner(f"m-{number}"))
        epochs.append(ownership.epoch)
        await PlanFile(store, ownership).write_snapshot(
            _chunks(ownership.epoch), generation=1, plan_id=_plan_id(ownership.epoch), owner_epoch=ownership.epoch
        )
        await ownership.release()
    assert epochs == sorted(set(epochs))
    assert epochs[0] >= 1


@_kit.case
@clause("STATE-11")
async def ending_twice_is_harmless(env: StoreEnv) -> None:
    unused = await env.store()
    await unused.close()
    await unused.close()
    store = await env.store()
    ownership = await store.acquire(an_owner())
    waiting = asyncio.ensure_future(ownership.wait_for_loss())
    await ownership.release()
    await ownership.release()
    done, _ = await asyncio.wait({waiting}, timeout=5)
    assert done, "wait_for_loss returns after a release"
    await _refused(OwnershipLostError, ownership.renew())
    await store.close()
    await store.close()
    again = await env.store()
    await (await again.acquire(an_owner("m-2"))).release()


async def _refused(kind: type[Exception], call: Awaitable[object]) -> Exception:
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def _plan_id(epoch: int) -> str:
    return f"{epoch:08d}-00000000"


def _chunks(epoch: int) -> list[bytes]:
    return [b'{"schema":1,"plan_id":"%b","generation":1,"applied_seq":0}' % _plan_id(epoch).encode()]
