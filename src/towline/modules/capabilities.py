"""What a node must offer, in one normal form: an AND of ORs of names (COORD-C20 to C25). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias, final

from towline.errors.declaration import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Requirement: TypeAlias = tuple[tuple[str, ...], ...]
"""AND of ORs: names casefolded, everything sorted, no clause that contains another; empty fits every node (COORD-C20)."""

CLAUSE_LIMIT = 32
"""Most clauses in a requirement, and most names in a clause (COORD-C22)."""

SYSTEMS: Final = frozenset({"linux", "windows", "macos"})
"""The names of operating systems; a node has exactly one of them."""

MASTER_CAPABILITY: Final = "master"
"""What the process has that leads a run, alone or with workers, and no other: a module may require to run there."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,63}\Z")
_NAME_WORDS = "1 to 64 of a-z, 0-9, '.', '_', '+' and '-', beginning with a letter or digit; case does not matter"

_ARCHITECTURES: Final = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "x64": "x86_64",
    "arm64": "arm64",
    "aarch64": "arm64",
    "i686": "x86",
    "i386": "x86",
    "x86": "x86",
    "armv7l": "armv7",
    "armv7": "armv7",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
    "riscv64": "riscv64",
}
"""Every spelling of an architecture, and which of them mean the same machine."""


@final
class Capability:
    """What a node must offer: ``cap("docker") & (cap("linux") | cap("macos"))``.

    ``requirement`` is its normal form. Combined with ``&`` and ``|``; ``and`` and ``or`` raise, for they would
    silently drop one side.
    """

    __slots__ = ("requirement",)

    def __init__(self, requirement: Requirement) -> None:
        self.requirement = requirement

    def __and__(self, other: Capability, /) -> Capability:
        if not isinstance(other, Capability):
            return NotImplemented
        return Capability(normalised((*self.requirement, *other.requirement)))

    def __or__(self, other: Capability, /) -> Capability:
        if not isinstance(other, Capability):
            return NotImplemented
        return Capability(normalised((*left, *right) for left in self.requirement for right in other.requirement))

    def __bool__(self) -> bool:
        raise DeclarationError("cap", "and/or", self, "combine capabilities with & and |")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capability) and self.requirement == other.requirement

    def __hash__(self) -> int:
        return hash(self.requirement)

    def __repr__(self) -> str:
        return in_words(self.requirement)


def cap(name: str, /) -> Capability:
    """Require one capability by name.

    Raises:
        DeclarationError: The name is not allowed (COORD-C22).
    """
    return Capability(normalised([[name]]))


def any_of(name: str, /, *names: str) -> Capability:
    """Require at least one of these capabilities.

    Raises:
        DeclarationError: A name is not allowed, or there are more than 32.
    """
    return Capability(normalised([[name, *names]]))


def normalised(clauses: Iterable[Iterable[str]]) -> Requirement:
    """Bring an AND of ORs into normal form (COORD-C20).

    Raises:
        DeclarationError: A name is not allowed, a clause is empty, or there are more than 32 clauses or names in one.
    """
    kept: set[frozenset[str]] = set()
    for clause in clauses:
        names = frozenset(_folded(name) for name in clause)
        if not names:
            raise DeclarationError("requires", "clause", [], "at least one capability in each clause")
        if len(names) > CLAUSE_LIMIT:
            raise DeclarationError("requires", "clause", sorted(names), f"at most {CLAUSE_LIMIT} names in one clause")
        kept.add(names)
    # A clause that contains another is implied by it: whoever has the smaller choice has the larger.
    minimal = [clause for clause in kept if not any(other < clause for other in kept)]
    if len(minimal) > CLAUSE_LIMIT:
        raise DeclarationError("requires", "clauses", len(minimal), f"at most {CLAUSE_LIMIT} clauses in normal form")
    return tuple(sorted(tuple(sorted(clause)) for clause in minimal))


def fits(requirement: Requirement, capabilities: Collection[str]) -> bool:
    """Say whether a node with these (casefolded) capabilities meets every clause (COORD-C21)."""
    return all(any(name in capabilities for name in clause) for clause in requirement)


def is_impossible(requirement: Requirement) -> bool:
    """Say whether no node can ever fit: it would need two operating systems, or two architectures (COORD-C25)."""
    fixed = [clause for clause in requirement if all(name in SYSTEMS or name in _ARCHITECTURES for name in clause)]
    wanted = [{_ARCHITECTURES.get(name, name) for name in clause} for clause in fixed]
    systems = SYSTEMS
    machines = set(_ARCHITECTURES.values())
    return not any(all({system, machine} & clause for clause in wanted) for system in systems for machine in machines)


def platform_capabilities(system: str, machine: str) -> frozenset[str]:
    """Name what a node has by being what it is: its operating system and architecture (COORD-C24).

    system: as ``sys.platform`` or ``platform.system()`` says it. machine: as ``platform.machine()`` says it; all spellings of the same
    architecture are given, so that ``requires="amd64"`` and ``requires="x86_64"`` mean the same nodes.
    """
    system = system.casefold()
    names = {{"darwin": "macos", "win32": "windows"}.get(system, system)}
    own = _ARCHITECTURES.get(machine.casefold(), machine.casefold())
    names.update(spelling for spelling, canonical in _ARCHITECTURES.items() if canonical == own)
    if own:
        names.add(own)
    return frozenset(names)


def in_words(requirement: Requirement) -> str:
    """Write a requirement for people: ``docker & (linux | macos)``; ``any node`` when it is empty."""
    if not requirement:
        return "any node"
    return " & ".join(clause[0] if len(clause) == 1 else f"({' | '.join(clause)})" for clause in requirement)


def _folded(name: object) -> str:
    if not isinstance(name, str) or not _NAME.match(name.casefold()):
        raise DeclarationError("requires", "capability", name, _NAME_WORDS)
    return name.casefold()
