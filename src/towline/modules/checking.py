"""Checks every setting of a module where it is written, and brings it into one spelling (MOD-08, MOD-09). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from towline.errors.declaration import DeclarationError
from towline.identity import MODULE_NAME, suggestion
from towline.modules.capabilities import Capability, normalised
from towline.modules.durations import seconds_of
from towline.modules.retry import RETRY_LIMIT, Retry
from towline.modules.settings import ArtifactRequest, Cache, Settings
from towline.modules.spec import NO_SETTINGS, CacheRule, ModuleSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from towline.modules.spec import SourceRef

PRIORITIES = {"low": -100, "normal": 0, "high": 100, "critical": 200}
PRIORITY_LIMIT = 999

DEPENDENCIES = ("name", "after", "consumes")
"""Settings that are no part of ``ModuleSettings``, or need other modules: who declares the module reads them."""

EXPANSIONS = ("matrix", "each")
"""Settings that make many tasks of one module; ``expansions.py`` reads them."""


class Declaring:
    """Who is being declared, for the error of any of its parts."""

    __slots__ = ("module", "source")

    def __init__(self, module: str, source: SourceRef | None) -> None:
        self.module, self.source = module, source

    def refuse(self, setting: str, value: object, allowed: str, cause: Exception | None = None) -> NoReturn:
        """Raise the ``DeclarationError`` of this module."""
        where = None if self.source is None else str(self.source)
        raise DeclarationError(self.module, setting, value, allowed, where) from cause


def checked_name(declaring: Declaring, name: object) -> str:
    """Return a module's name if it is allowed (MOD-04)."""
    if isinstance(name, str) and len(name) <= 120 and name.isascii() and name.isidentifier():
        return name  # the usual case, at a fraction of what the pattern costs: a loop may declare thousands
    if not isinstance(name, str) or not MODULE_NAME.match(name):
        allowed = "1 to 120 of A-Z a-z 0-9 _ . ( ) = , space and -, beginning with a letter or _; give one with name="
        declaring.refuse("name", name, allowed)
    return name


def checked_settings(declaring: Declaring, settings: Mapping[str, Any], *, expandable: bool) -> ModuleSettings:
    """Check and convert all settings but those of ``DEPENDENCIES`` and ``EXPANSIONS``.

    ``expandable``: ``matrix`` and ``each`` are allowed here.

    Raises:
        DeclarationError: An unknown keyword, a value of the wrong type or range, or a contradiction.
    """
    if not settings or (len(settings) == 1 and "name" in settings):
        return NO_SETTINGS
    fields: dict[str, Any] = {}
    wrong: list[DeclarationError] = []
    for setting, value in settings.items():
        check = _CHECKS.get(setting)
        try:
            if check is not None:
                field, fields_value = check(declaring, setting, value)
                fields[field] = fields_value
            elif setting not in DEPENDENCIES and not (expandable and setting in EXPANSIONS):
                _refuse_unknown(declaring, setting, value)
        except DeclarationError as error:
            wrong.append(error)
    if wrong:
        raise _together(wrong)
    checked = ModuleSettings(**fields) if fields else NO_SETTINGS
    _check_together(declaring, checked)
    return checked


def _together(wrong: list[DeclarationError]) -> DeclarationError:
    """Make one error of all wrong settings of a module: the first, with the others behind it."""
    first, *others = wrong
    if not others:
        return first
    more = "".join(f"; also {error.setting}={error.value!r}: {error.allowed.rstrip('.')}" for error in others)
    allowed = first.allowed.rstrip(".") + more
    return DeclarationError(first.module, first.setting, first.value, allowed, first.where)


def _refuse_unknown(declaring: Declaring, setting: str, value: object) -> NoReturn:
    known = (*Settings.__annotations__, *EXPANSIONS)
    if setting in EXPANSIONS:
        declaring.refuse(setting, value, "only for a class that derives from ExpandedModule")
    declaring.refuse(
        setting, value, f"there is no such setting.{suggestion(setting, known) or ' Known: ' + ', '.join(known)}"
    )


def _check_together(declaring: Declaring, settings: ModuleSettings) -> None:
    """Refuse what cannot be meant together (MOD-09)."""
    if settings.at_most_once and settings.retries is not None and settings.retries.count:
        declaring.refuse(
            "at_most_once",
            True,
            f"not together with retries={settings.retries.count}: a second attempt is a second time",
        )
    if settings.at_most_once and settings.cache is not None:
        declaring.refuse("at_most_once", True, "not together with cache: a cached task does not run at all")
    if settings.always_run and settings.gate:
        declaring.refuse("always_run", True, "not together with gate: what always runs cannot hold anything back")


# ------------------------------------------------------------------ one check per kind of value
# Each returns the field of ModuleSettings and its value.


def _flag(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if not isinstance(value, bool):
        declaring.refuse(setting, value, "True or False")
    return setting, value


def _text(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if not isinstance(value, str) or not value:
        declaring.refuse(setting, value, "a text that is not empty")
    return setting, value


def _names(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if not isinstance(value, (set, frozenset)) or not all(isinstance(name, str) and name for name in value):
        declaring.refuse(setting, value, "a set of names, for example {'db'}")
    return setting, frozenset(value)


def _tags(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    _, names = _names(declaring, setting, value)
    return setting, frozenset(name.casefold() for name in names)  # type: ignore[attr-defined]


def _one_of(*allowed: str) -> Callable[[Declaring, str, object], tuple[str, object]]:
    def check(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
        if value not in allowed:
            listed = " or ".join(repr(word) for word in allowed)
            declaring.refuse(setting, value, listed + (suggestion(value, allowed) if isinstance(value, str) else ""))
        return setting, value

    return check


def _timeout(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    try:
        return "timeout_s", seconds_of(value)
    except ValueError as error:
        declaring.refuse(setting, value, str(error))


def _retries(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if isinstance(value, Retry):
        return setting, value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= RETRY_LIMIT:
        declaring.refuse(setting, value, f"a whole number of extra attempts, 0 to {RETRY_LIMIT}, or a Retry")
    return setting, Retry(value)


def _ignore_failure(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if isinstance(value, bool) or (callable(value) and not isinstance(value, type)):
        return setting, value
    return declaring.refuse(setting, value, "True, False, or a function error -> bool")


def _conditions(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    from towline.modules.bodies import is_async
    from towline.modules.conditions import Condition

    listed = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for one in listed:
        if isinstance(one, Condition):
            continue
        if not callable(one) or isinstance(one, type):
            declaring.refuse(
                setting, one, "a condition such as env('CI'), a function of the task's facts, or a list of those"
            )
        if is_async(one):
            declaring.refuse(
                setting, one, "a function that answers at once; what must wait belongs in the body: raise Skip(...)"
            )
    return setting, listed


def _priority(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if isinstance(value, str) and value in PRIORITIES:
        return setting, PRIORITIES[value]
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_LIMIT:
        words = ", ".join(repr(word) for word in PRIORITIES)
        advice = suggestion(value, PRIORITIES) if isinstance(value, str) else ""
        declaring.refuse(
            setting, value, f"{words}, or a whole number from -{PRIORITY_LIMIT} to {PRIORITY_LIMIT}{advice}"
        )
    return setting, value


def _requires(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if isinstance(value, Capability):
        return setting, value.requirement
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, (list, tuple)):
        declaring.refuse(
            setting, value, "a capability, a list of those that are all needed, or cap('a') & (cap('b') | cap('c'))"
        )
    if any(isinstance(one, Capability) for one in value):
        declaring.refuse(
            setting, value, "a list holds names alone; combine capabilities without one: cap('a') & cap('b')"
        )
    try:
        return setting, normalised((one,) if isinstance(one, str) else _not_a_name(one) for one in value)
    except DeclarationError as error:
        declaring.refuse(setting, error.value, error.allowed, error)


def _not_a_name(value: object) -> NoReturn:
    raise DeclarationError("requires", "capability", value, "the names of capabilities; combine cap(...) with & and |")


def _pools(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if isinstance(value, str) and value:
        return setting, {value: 1}
    allowed = "the name of a pool, or {'name': tickets} with whole numbers from 1"
    if not isinstance(value, Mapping) or not value:
        declaring.refuse(setting, value, allowed)
    for name, tickets in value.items():
        if (
            not isinstance(name, str)
            or not name
            or isinstance(tickets, bool)
            or not isinstance(tickets, int)
            or tickets < 1
        ):
            declaring.refuse(setting, value, allowed)
    return setting, dict(value)


def _produces(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    from towline.artifacts.declaration import check_name, check_pattern

    if not isinstance(value, Mapping):
        declaring.refuse(setting, value, "{'name': 'pattern'}, for example {'wheel': 'dist/*.whl'}")
    for name, pattern in value.items():
        try:
            check_name(name)
            check_pattern(pattern)
        except ValueError as error:
            declaring.refuse(setting, {name: pattern}, str(error), error)
    return setting, dict(value)


def _cache(declaring: Declaring, setting: str, value: object) -> tuple[str, object]:
    if value is False:
        return setting, None
    if value is True:
        return setting, CacheRule()
    if not isinstance(value, Cache):
        declaring.refuse(setting, value, "True, False or a Cache(...)")
    return setting, CacheRule(
        inputs=tuple(value.inputs),
        key=tuple(value.key),
        env=tuple(value.env),
        version=value.version,
        portable=value.portable,
    )


_CHECKS: dict[str, Callable[[Declaring, str, object], tuple[str, object]]] = {
    "timeout": _timeout,
    "retries": _retries,
    "ignore_failure": _ignore_failure,
    "always_run": _flag,
    "run_if": _conditions,
    "skip_if": _conditions,
    "priority": _priority,
    "requires": _requires,
    "locks": _names,
    "exclusive": _flag,
    "pools": _pools,
    "hint": _one_of("cpu", "io"),
    "isolation": _one_of("auto", "thread", "process"),
    "produces": _produces,
    "cache": _cache,
    "tags": _tags,
    "category": _text,
    "phase": _text,
    "gate": _flag,
    "version": _text,
    "at_most_once": _flag,
}


def checked_requests(declaring: Declaring, value: object) -> tuple[ArtifactRequest, ...]:
    """Check that ``consumes`` is a list of artifact requests; their names are checked against their modules later."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, ArtifactRequest) for one in value):
        declaring.refuse("consumes", value, "a list of requests, for example [build.artifact('wheel')]")
    return tuple(value)
