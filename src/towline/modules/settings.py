"""The settings of a module as a user writes them: the same keywords for a function and a class."""

from __future__ import annotations

from collections.abc import Sequence  # for help(), which evaluates the fields of a record
from typing import TYPE_CHECKING, Any, Literal, TypedDict, final

import msgspec

from towline.errors.declaration import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from towline.modules.capabilities import Capability
    from towline.modules.conditions import ConditionLike
    from towline.modules.durations import Duration
    from towline.modules.kinds import AnyModule
    from towline.modules.retry import Retry
    from towline.modules.selectors import Selector


class Settings(TypedDict, total=False):
    """The keywords of ``@module(...)`` and of ``class X(Module[T], ...)``: the same in both.

    Durations are seconds or a timedelta. What is left out falls back to the run's options, or to "no".
    """

    name: str
    after: Sequence[AnyModule | Selector[Any]]
    timeout: Duration
    retries: int | Retry
    ignore_failure: bool | Callable[[Exception], bool]
    always_run: bool
    run_if: ConditionLike | Sequence[ConditionLike]
    skip_if: ConditionLike | Sequence[ConditionLike]
    priority: int | Literal["low", "normal", "high", "critical"]
    requires: str | Sequence[str] | Capability
    locks: AbstractSet[str]
    exclusive: bool
    pools: str | Mapping[str, int]
    hint: Literal["cpu", "io"]
    isolation: Literal["auto", "thread", "process"]
    produces: Mapping[str, str]
    consumes: Sequence[ArtifactRequest]
    cache: bool | Cache
    tags: AbstractSet[str]
    category: str
    phase: str
    gate: bool
    version: str
    at_most_once: bool


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """What else a cached result depends on, besides the module's code, inputs and parameters (CACHE-01).

    ``inputs``: glob patterns of files, relative to the program's root. ``key``: any JSON values. ``env``:
    names of environment variables. ``version``: stands in for the code of the program. ``portable``: the result is
    the same on every system, machine and Python version.

    Raises:
        DeclarationError: A bare text stands where a sequence belongs, or a value is of the wrong type.
    """

    inputs: Sequence[str] = ()
    key: Sequence[object] = ()
    env: Sequence[str] = ()
    version: str | None = None
    portable: bool = False

    def __post_init__(self) -> None:
        for name, values in (("inputs", self.inputs), ("env", self.env)):
            if isinstance(values, str) or not all(isinstance(value, str) and value for value in values):
                raise DeclarationError("Cache", name, values, "a list of texts that are not empty")
        if isinstance(self.key, (str, bytes)):
            raise DeclarationError("Cache", "key", self.key, "a list of values")
        if self.version is not None and (not isinstance(self.version, str) or not self.version):
            raise DeclarationError("Cache", "version", self.version, "a text that is not empty")
        if not isinstance(self.portable, bool):
            raise DeclarationError("Cache", "portable", self.portable, "True or False")


class Pool(msgspec.Struct, frozen=True):
    """Tickets of a pool, counted per node or over all nodes of the run (SCHED-11).

    Raises:
        DeclarationError: Fewer than one ticket, or another scope.
    """

    tickets: int
    scope: Literal["node", "run"] = "node"

    def __post_init__(self) -> None:
        if isinstance(self.tickets, bool) or not isinstance(self.tickets, int) or self.tickets < 1:
            raise DeclarationError("Pool", "tickets", self.tickets, "a whole number, 1 or more")
        if self.scope not in ("node", "run"):
            raise DeclarationError("Pool", "scope", self.scope, "'node' or 'run'")


@final
class ArtifactRequest(msgspec.Struct, frozen=True, eq=False):
    """What ``m.artifact("name")`` gives: an entry of ``consumes``.

    ``into``: the folder below the workdir that the files go to; of an expanded module each key gets a folder
    of its own in it, unless ``same_key`` asks for the artifact of the asker's own key alone.
    """

    module: Any
    name: str
    into: str = "."
    same_key: bool = False
