"""The contract kit for cursors: over a state store, and over a target that keeps them (``planning.md`` section 5).

Write a :class:`CursorEnv`, then run every case on a fresh one, as with ``store_cases()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from towline.errors.cursors import CursorOrderError, CursorStageError, QueryChangedError
from towline.errors.state import LeaseLostError
from towline.state.cursors import Batch, Cursor, CursorKey, CursorStore, Query
from towline.testing.cases import Case, Kit
from towline.testing.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from towline.state.cursor_home import CursorTarget
    from towline.state.store import StateStore

PLAN = "00000002-be27d441"
TASK = "import.flights[01]"


class CursorEnv(Protocol):
    """One fresh place for cursors; its author writes this."""

    scope: str
    """Distinct for each env, where a target is shared."""

    async def store(self) -> StateStore:
        """Open the state store once more."""
        ...

    def target(self) -> CursorTarget | None:
        """Open the target once more, on a connection of its own; ``None``: cursors lie in the store."""
        ...

    def commit(self, target: CursorTarget | None) -> None:
        """Commit the transaction of a target."""
        ...

    async def aclose(self) -> None: ...


_kit: Kit[CursorEnv] = Kit()


def cursor_cases(*, skip: Collection[str] = ()) -> Sequence[Case[CursorEnv]]:
    """Return all cases but those of the skipped clauses."""
    return _kit.cases(skip)


async def opened(env: CursorEnv, epoch: int = 1, plan_id: str = PLAN, **options: Any) -> Cursor[Any, Any]:
    """Open the cursor of a claim."""
    cursors = CursorStore(await env.store(), scope=env.scope)
    options.setdefault("key", _itself)
    cursor = await cursors.open(TASK, epoch, plan_id, store=env.target(), **options)
    cursor.attach()
    return cursor


async def worked(env: CursorEnv, cursor: Cursor[Any, Any], source: Sequence[Any], *, size: int = 2) -> list[Any]:
    """Commit everything that the cursor yields of a source, and return it."""
    seen: list[Any] = []
    async for batch in cursor.batches(source, size=size):
        seen.extend(batch)
        await cursor.commit(batch)
        env.commit(cursor.target)
    await cursor.close()
    env.commit(cursor.target)
    return seen


def _itself(item: Any) -> Any:
    return item


@_kit.case
@clause("CUR-01")
async def done_items_are_not_yielded_and_the_reached_one_with_what_is_left(env: CursorEnv) -> None:
    stages = ("row", "sheet", "done")
    cursor = await opened(env, stages=stages)
    assert cursor.position is None
    async for item in cursor.items(["a", "b", "c"]):
        if item == "a":
            await cursor.commit(item)
        else:
            await cursor.stage(item, "row")
            assert not cursor.needs("b", "row")
            assert cursor.needs("b", "sheet")
            break
    env.commit(cursor.target)

    again = await opened(env, epoch=2, stages=stages)
    assert again.position == "b"
    needs = {
        item: [stage for stage in stages if again.needs(item, stage)] async for item in again.items(["a", "b", "c"])
    }
    assert needs == {"b": ["sheet", "done"], "c": ["row", "sheet", "done"]}
    for item in ("b", "c"):
        await again.stage(item, "done")
    env.commit(again.target)
    assert await worked(env, await opened(env, epoch=3, stages=stages), ["a", "b", "c", "d"]) == ["d"]


@_kit.case
@clause("CUR-02")
async def keys_rise_by_value(env: CursorEnv) -> None:
    cursor = await opened(env)
    for wrong in (["a", "b", "b"], ["9", "10"], ["a", "c", "b"], ["a", 1], [1.5], [True], [None], [()]):
        await _refused(CursorOrderError, _walk(cursor, wrong))
    assert await worked(env, cursor, [("2013-01-14", 7), ("2013-01-14", 10), ("2013-02-01", -1), (10**40, 1)][:3]) == [
        ("2013-01-14", 7),
        ("2013-01-14", 10),
        ("2013-02-01", -1),
    ]
    again = await opened(env, epoch=2)
    assert again.position == ("2013-02-01", -1)


@_kit.case
@clause("CUR-02")
async def integer_keys_of_any_size_are_kept_exactly(env: CursorEnv) -> None:
    source = [9, 10, 2**53 + 1, 10**40 + 1]
    assert await worked(env, await opened(env), source) == source
    assert (await opened(env, epoch=2)).position == 10**40 + 1


@_kit.case
@clause("CUR-03", "CUR-04")
async def an_uncommitted_batch_comes_again_and_no_other(env: CursorEnv) -> None:
    cursor = await opened(env)
    seen: list[int] = []
    async for batch in cursor.batches(range(10), size=3):
        seen.extend(batch)
        if batch[0] == 3:
            break  # the effect is done, the process dies before the commit
        await cursor.commit(batch)
        env.commit(cursor.target)
    again = await worked(env, await opened(env, epoch=2), range(10), size=3)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert again == [3, 4, 5, 6, 7, 8, 9]


@_kit.case
@clause("CUR-04", "CUR-06")
async def a_commit_that_is_repeated_changes_nothing(env: CursorEnv) -> None:
    cursor = await opened(env)
    for _ in range(2):
        await cursor.commit(Batch(["a", "b"]))
    env.commit(cursor.target)
    assert cursor.state.document.totals.done == 2


@_kit.case
@clause("CUR-05")
async def a_later_claim_takes_over_and_the_older_one_is_refused(env: CursorEnv) -> None:
    older = await opened(env, epoch=1)
    await older.commit(Batch(["a", "b"]))
    env.commit(older.target)

    newer = await opened(env, epoch=2)
    assert newer.position == "b"
    for call in (older.commit("c"), older.stage("c", "done"), older.skip("c", "ODD")):
        await _refused(LeaseLostError, call)
    _rolled_back(older)
    await _refused(LeaseLostError, opened(env, epoch=1))
    await newer.commit("c")
    env.commit(newer.target)

    assert (await opened(env, epoch=3)).position == "c"


@_kit.case
@clause("CUR-05")
async def an_older_plan_counts_as_no_cursor_and_cannot_write(env: CursorEnv) -> None:
    old = await opened(env, epoch=9, plan_id="00000001-ffffffff")
    await old.skip("a", "ODD")
    await old.commit("b")
    env.commit(old.target)

    new = await opened(env, epoch=1)
    assert new.position is None
    assert new.state.document.totals.done == 0
    assert await CursorStore(await env.store()).skips(TASK) == {}
    await _refused(LeaseLostError, old.commit("c"))
    _rolled_back(old)
    await _refused(LeaseLostError, opened(env, epoch=9, plan_id="00000001-ffffffff"))
    assert await worked(env, new, ["a", "b", "c"]) == ["a", "b", "c"]


@_kit.case
@clause("CUR-06")
async def the_cursor_never_moves_backwards(env: CursorEnv) -> None:
    cursor = await opened(env, stages=("row", "done"))
    await cursor.stage("c", "row")
    for call in (cursor.commit("b"), cursor.stage("b", "row"), cursor.commit(Batch(["a", "b"]))):
        await _refused(CursorOrderError, call)
    await cursor.stage("c", "row")
    await cursor.commit("c")
    env.commit(cursor.target)
    assert (await opened(env, epoch=2, stages=("row", "done"))).position == "c"


@_kit.case
@clause("CUR-07")
async def a_stage_that_is_gone_stops_the_task(env: CursorEnv) -> None:
    cursor = await opened(env, stages=("row", "sheet", "done"))
    await _refused(CursorStageError, cursor.stage("a", "shet"))
    await cursor.stage("a", "sheet")
    env.commit(cursor.target)

    error = await _refused(CursorStageError, opened(env, epoch=2, stages=("row", "done")))
    assert "sheet" in str(error)
    wider = await opened(env, epoch=3, stages=("row", "photo", "sheet", "links", "done"))
    assert [stage for stage in ("photo", "sheet", "links") if wider.needs("a", stage)] == ["links"]


@_kit.case
@clause("CUR-10", "CUR-11")
async def skipped_items_move_the_cursor_and_are_counted_once(env: CursorEnv) -> None:
    cursor = await opened(env, total=6)
    for attempt in (1, 2):
        if attempt == 2:
            cursor = await opened(env, epoch=2)
        async for batch in cursor.batches(range(6), size=3):
            for item in batch:
                if item % 2:
                    await cursor.skip(item, "ODD", f"attempt {attempt}")
            if attempt == 1 and batch[0] == 3:
                break  # dies before the commit: 5 is skipped again
            await cursor.commit(batch)
            env.commit(cursor.target)
        _rolled_back(cursor)
    await cursor.close()
    env.commit(cursor.target)

    totals = cursor.state.document.totals
    assert (totals.done, totals.skipped, totals.total) == (6, {"ODD": 3}, 6)
    skips = await CursorStore(await env.store()).skips(TASK)
    assert sorted(skips, key=str) == [1, 3, 5]
    assert skips[5].text == "attempt 2", "the last record of a key counts"


@_kit.case
@clause("CUR-10")
async def a_skip_inside_a_batch_does_not_pass_the_items_before_it(env: CursorEnv) -> None:
    cursor = await opened(env)
    async for _ in cursor.batches(["a", "b", "c"], size=3):
        await cursor.skip("b", "ODD")
        assert cursor.position is None
        await cursor.skip("a", "ODD")
        assert cursor.position == "a"
        break
    env.commit(cursor.target)
    again = await opened(env, epoch=2)
    assert await worked(env, again, ["a", "b", "c"]) == ["b", "c"]


@_kit.case
@clause("CUR-11")
async def the_end_is_stored_when_the_source_is_exhausted(env: CursorEnv) -> None:
    async def at_end(epoch: int) -> bool:
        return (await opened(env, epoch=epoch)).state.document.at_end

    cursor = await opened(env)
    async for batch in cursor.batches(range(4), size=2):
        await cursor.commit(batch)
        env.commit(cursor.target)
        if batch[0] == 0:
            assert not cursor.state.document.at_end
    env.commit(cursor.target)
    assert await at_end(2)
    assert await worked(env, await opened(env, epoch=3), range(5)) == [4]
    assert await at_end(4)


@_kit.case
@clause("CUR-11")
async def an_empty_source_is_at_its_end(env: CursorEnv) -> None:
    assert await worked(env, await opened(env), []) == []
    assert (await opened(env, epoch=2)).state.document.at_end


@_kit.case
@clause("CUR-17")
async def another_query_is_refused_or_restarts(env: CursorEnv) -> None:
    query, other = Query("select", {"origin": "EWR", "n": 1}), Query("select", {"origin": "JFK", "n": 1})
    assert query.digest == Query("select", {"n": 1, "origin": "EWR"}).digest
    cursor = await opened(env, query=query)
    await cursor.skip("a", "ODD")
    await cursor.commit("b")
    env.commit(cursor.target)

    assert (await opened(env, epoch=2, query=query)).position == "b"
    error = await _refused(QueryChangedError, opened(env, epoch=3, query=other))
    assert query.digest in str(error)
    assert other.digest in str(error)
    restarted = await opened(env, epoch=4, query=other, on_query_change="restart")
    assert restarted.position is None
    assert await worked(env, restarted, ["a", "b"]) == ["a", "b"]
    assert restarted.state.document.totals.done == 2
    assert restarted.state.document.totals.skipped == {}
    assert (await opened(env, epoch=5, query=other)).position == "b"


@_kit.case
@clause("CUR-18")
async def a_moment_shared_by_many_is_continued_inclusively(env: CursorEnv) -> None:
    rows = [("10:00", number) for number in range(6)] + [("10:01", 0)]
    query = Query("select * from t where changed >= :boundary order by changed, id")
    cursor = await opened(env, query=query)
    seen: list[Any] = []
    async for batch in cursor.batches(rows, size=3):
        seen.extend(batch)
        await cursor.commit(batch)
        env.commit(cursor.target)
        break
    again = await opened(env, epoch=2, query=query)
    token = again.state.document.continuation
    assert token is not None
    assert (token.boundary, token.tie_break, token.completed) == ("10:00", [2], False)
    seen += await worked(env, again, [row for row in rows if row[0] >= str(token.boundary)])
    assert seen == rows


@_kit.case
@clause("CUR-19")
async def what_was_edited_behind_the_cursor_comes_when_a_completed_token_goes_on(env: CursorEnv) -> None:
    changed_at = {"a": 1, "b": 2, "c": 3}
    query = Query("by moment of change")

    def source() -> list[tuple[int, str]]:
        return sorted((at, name) for name, at in changed_at.items())

    assert await worked(env, await opened(env, query=query), source()) == [(1, "a"), (2, "b"), (3, "c")]
    changed_at["a"] = 4
    again = await opened(env, epoch=2, query=query)
    token = again.state.document.continuation
    assert token is not None
    assert token.completed
    assert await worked(env, again, source()) == [(4, "a")]


async def _walk(cursor: Cursor[Any, CursorKey], source: Sequence[Any]) -> None:
    async for _ in cursor.items(source):
        continue


async def _refused(kind: type[Exception], call: Awaitable[object]) -> Exception:
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def _rolled_back(cursor: Cursor[Any, Any]) -> None:
    """End the transaction of a refused claim, as its failing body does."""
    connection = getattr(cursor.target, "connection", None)
    if connection is not None:
        connection.rollback()
