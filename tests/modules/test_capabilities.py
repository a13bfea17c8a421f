"""Requirements have one normal form, whatever way they were written."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline import Capability, DeclarationError, any_of, cap, module
from towline.modules import spec_of
from towline.modules.capabilities import (
    Requirement,
    fits,
    in_words,
    is_impossible,
    normalised,
    platform_capabilities,
)
from towline.testing import clause

NAMES = ["a", "B", "c", "D"]
NODES = [
    {name for name, has in zip("abcd", chosen, strict=True) if has}
    for chosen in itertools.product([False, True], repeat=4)
]
expressions = st.recursive(
    st.sampled_from(NAMES).map(cap),
    lambda inner: st.tuples(st.sampled_from("&|"), inner, inner).map(
        lambda parts: parts[1] & parts[2] if parts[0] == "&" else parts[1] | parts[2]
    ),
    max_leaves=6,
)


@clause("COORD-C20")
@given(st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), max_size=6))
def test_normal_form_is_sorted_folded_and_minimal(clauses: list[list[str]]) -> None:
    """Nodes compare requirements by their bytes; two spellings of one wish must be the same bytes."""
    normal = normalised(clauses)

    assert normalised(reversed(normal)) == normal
    assert list(normal) == sorted(normal)
    assert all(list(one) == sorted(set(one)) and all(name == name.casefold() for name in one) for one in normal)
    assert not any(set(one) < set(other) or (one is not other and one == other) for one in normal for other in normal)
    for node in NODES:
        asked = all(any(name.casefold() in node for name in one) for one in clauses)
        assert fits(normal, node) == asked


@clause("COORD-C20")
@given(expressions, expressions)
def test_and_or_mean_what_they_say(left: Capability, right: Capability) -> None:
    """Distributing ``|`` over ``&`` changes the spelling and never the meaning."""
    for node in NODES:
        met_left, met_right = fits(left.requirement, node), fits(right.requirement, node)
        assert fits((left & right).requirement, node) == (met_left and met_right)
        assert fits((left | right).requirement, node) == (met_left or met_right)


@clause("COORD-C21")
def test_empty_requirement_fits_every_node() -> None:
    """Most modules run anywhere."""
    assert fits((), ())
    assert not fits((("linux",),), ())


@clause("COORD-C22")
@pytest.mark.parametrize("name", ["", "-a", "a b", "ä", "a" * 65, "a,b", "a|b"])
def test_name_of_a_capability_is_checked(name: str) -> None:
    """Names stand in flags, keys and bucket names of the queue."""
    with pytest.raises(DeclarationError, match="letter or digit"):
        cap(name)


@clause("COORD-C22")
def test_requirement_has_bounds() -> None:
    """A claim looks at every clause, so their number is bounded."""
    names = [f"n{number}" for number in range(33)]
    assert len(any_of(*names[:32]).requirement[0]) == 32
    with pytest.raises(DeclarationError, match="32"):
        any_of(*names)
    with pytest.raises(DeclarationError, match="32 clauses"):
        normalised([[name] for name in names])
    with pytest.raises(DeclarationError, match="at least one"):
        normalised([[]])


@clause("COORD-C23")
def test_every_spelling_of_a_requirement() -> None:
    """Text for one, a list for all of them, expressions for the rest."""

    def required(spelling: str | list[str] | Capability) -> Requirement | None:
        @module(requires=spelling)
        async def build(ctx: object) -> None: ...

        return spec_of(build).settings.requires

    assert required("Linux") == (("linux",),)
    assert required(["linux", "docker"]) == (("docker",), ("linux",))
    assert required(any_of("linux", "macos")) == (("linux", "macos"),)
    assert required(cap("docker") & (cap("linux") | cap("macos"))) == (("docker",), ("linux", "macos"))
    assert required([]) == ()


@clause("COORD-C23", "MOD-08")
def test_a_list_of_capabilities_is_named_as_the_fault() -> None:
    """The capability in the list is right; that it stands in a list is not, and must be what the message shows."""
    with pytest.raises(DeclarationError, match=r"requires=\[w\] cannot be used: .*cap\('a'\) & cap\('b'\)"):

        @module(requires=[cap("w")])  # type: ignore[arg-type, list-item]
        async def build(ctx: object) -> None: ...


@clause("COORD-C23")
def test_and_or_keywords_are_refused() -> None:
    """``cap("a") and cap("b")`` would silently be ``cap("b")``."""
    with pytest.raises(DeclarationError, match="&"):
        cap("a") and cap("b")
    with pytest.raises(DeclarationError, match="&"):
        cap("a") or cap("b")


IMPOSSIBLE = [
    (cap("linux") & cap("windows"), True),
    (cap("x86_64") & cap("arm64"), True),
    (cap("amd64") & cap("x86_64"), False),
    (cap("linux") & cap("arm64"), False),
    (any_of("linux", "macos") & cap("macos"), False),
    (any_of("linux", "macos") & cap("windows"), True),
    (any_of("linux", "docker") & cap("windows"), False),
    (cap("docker") & cap("gpu"), False),
]


@clause("COORD-C25")
@pytest.mark.parametrize(("requirement", "impossible"), IMPOSSIBLE)
def test_requirement_that_no_node_can_meet(requirement: Capability, impossible: bool) -> None:
    """A task that waits for a node which cannot exist would wait for ever."""
    assert is_impossible(requirement.requirement) is impossible


@clause("COORD-C24")
@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", {"linux", "x86_64", "amd64", "x64"}),
        ("darwin", "arm64", {"macos", "arm64", "aarch64"}),
        ("Windows", "AMD64", {"windows", "x86_64", "amd64", "x64"}),
        ("win32", "ARM64", {"windows", "arm64", "aarch64"}),
        ("freebsd14", "sparc", {"freebsd14", "sparc"}),
    ],
)
def test_node_has_its_system_and_architecture(system: str, machine: str, expected: set[str]) -> None:
    """Nobody should have to declare what a machine knows of itself."""
    assert platform_capabilities(system, machine) == expected


def test_requirement_in_words() -> None:
    """People read it in the plan, beside what the node has."""
    assert in_words((cap("docker") & any_of("linux", "macos")).requirement) == "docker & (linux | macos)"
    assert in_words(()) == "any node"
