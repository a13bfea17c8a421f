"""Stand-ins for what a run will give: the defaults by which a body declares its dependencies (MOD-13, MOD-15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from towline.errors.declaration import DeclarationError, UndeclaredDependencyError
from towline.modules.current import current_attempt
from towline.modules.kinds import OneTask, is_module
from towline.modules.selectors import Selector

if TYPE_CHECKING:
    from towline.modules.kinds import ManyModule, OneModule
    from towline.modules.outcomes import Outcome

T = TypeVar("T")

MarkerUse = Literal["value", "optional", "outcome"]

_MADE_BY = {"value": "result_of", "optional": "maybe_result_of", "outcome": "outcome_of"}


class Marker:
    """What ``result_of`` and its like really return; checkers see the type of the result instead.

    Reaching into one means that no value was put in its place, and raises. Names that begin with an
    underscore are left alone, for copying, printing and inspecting must not raise.
    """

    __slots__ = ("_module", "_same_key", "_use")

    def __init__(self, module: object, use: MarkerUse, *, same_key: bool) -> None:
        if not is_module(module) and not isinstance(module, Selector):
            allowed = "a module: decorate the function with @module" if callable(module) else "a module, not its name"
            raise DeclarationError(_MADE_BY[use], "module", module, allowed)
        if same_key and (
            isinstance(module, (OneTask, Selector)) or (isinstance(module, type) and issubclass(module, OneTask))
        ):
            allowed = f"only with a module that has matrix or each, which {name_of(module)} has not"
            raise DeclarationError(_MADE_BY[use], "same_key", True, allowed)
        self._module, self._use, self._same_key = module, use, same_key

    def __repr__(self) -> str:
        same_key = ", same_key=True" if self._same_key else ""
        return f"{_MADE_BY[self._use]}({name_of(self._module)}{same_key})"

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        self._refuse()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        reader = current_attempt.get()
        who = "code outside a run" if reader is None else reader.task_id
        raise UndeclaredDependencyError(who, name_of(self._module))

    __call__ = __getitem__ = __iter__ = __len__ = __bool__ = __contains__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __index__ = __fspath__ = _refuse


def name_of(module: object) -> str:
    """Name whatever stands for a module in a declaration, for people."""
    name = getattr(module, "name", None) if not isinstance(module, type) else None
    return name if isinstance(name, str) and name else getattr(module, "__name__", None) or repr(module)


def marker_parts(marker: Marker) -> tuple[object, MarkerUse, bool]:
    """Take a marker apart: what it stands for, how it is used, and whether keys are paired (MOD-19)."""
    return marker._module, marker._use, marker._same_key


@overload
def result_of(module: OneModule[T], *, init: Literal[False] = False) -> T: ...
@overload
def result_of(module: ManyModule[T], *, same_key: Literal[True], init: Literal[False] = False) -> T: ...
@overload
def result_of(module: ManyModule[T] | Selector[T], *, init: Literal[False] = False) -> list[T]: ...
def result_of(module: Any, *, same_key: bool = False, init: Literal[False] = False) -> Any:
    """Stand for the result of a module, as the default of a parameter or field.

    The dependency is required: it comes along into the plan, and must succeed. Of an expanded module or a
    selector the value is a list in key order; with ``same_key`` it is the one of the asker's own key.
    ``init`` tells type checkers that the field is no constructor parameter; nobody passes it.
    """
    return Marker(module, "value", same_key=same_key)


@overload
def maybe_result_of(module: OneModule[T], *, init: Literal[False] = False) -> T | None: ...
@overload
def maybe_result_of(module: ManyModule[T], *, same_key: Literal[True], init: Literal[False] = False) -> T | None: ...
@overload
def maybe_result_of(module: ManyModule[T] | Selector[T], *, init: Literal[False] = False) -> list[T | None]: ...
def maybe_result_of(module: Any, *, same_key: bool = False, init: Literal[False] = False) -> Any:
    """Stand for the result of a module, or ``None`` when it is absent or did not succeed.

    The dependency is optional: it is waited for when the plan holds it, and never brought along. Of an
    expanded module the list has ``None`` in the places of failed keys; of an absent one it is ``[]``.
    """
    return Marker(module, "optional", same_key=same_key)


@overload
def outcome_of(module: OneModule[T], *, init: Literal[False] = False) -> Outcome[T]: ...
@overload
def outcome_of(module: ManyModule[T], *, same_key: Literal[True], init: Literal[False] = False) -> Outcome[T]: ...
@overload
def outcome_of(module: ManyModule[T] | Selector[T], *, init: Literal[False] = False) -> list[Outcome[T]]: ...
def outcome_of(module: Any, *, same_key: bool = False, init: Literal[False] = False) -> Any:
    """Stand for the whole outcome of a module, also of one that failed, was skipped or cancelled.

    The dependency comes along into the plan, and may end in any way.
    """
    return Marker(module, "outcome", same_key=same_key)
