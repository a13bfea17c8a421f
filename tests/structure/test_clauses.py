"""Every clause of the spec is proven by a test or stands in the one list of open ones."""

from __future__ import annotations

from structure import clauses
from towline.testing import clause


@clause("TEST-12")
def test_every_clause_has_a_test_or_is_listed_as_open() -> None:
    """A rule that nobody checks is a wish; one that is open must say so."""
    proven = set(clauses.claimed()) | clauses.kit_claims()
    missing = clauses.defined() - proven - set(clauses.listed_open())
    assert not missing, f"neither tested nor listed as open: {sorted(missing)}"


@clause("TEST-12")
def test_open_list_is_true() -> None:
    """The list shrinks when a clause gets its test, and names no clause that the spec does not have."""
    listed = clauses.listed_open()
    proven = set(clauses.claimed()) | clauses.kit_claims()
    assert len(listed) == len(set(listed))
    assert not set(listed) & proven, f"has a test now, rewrite the list: {sorted(set(listed) & proven)}"
    assert not set(listed) - clauses.defined(), f"no such clause: {sorted(set(listed) - clauses.defined())}"


@clause("TEST-12")
def test_tests_name_no_unknown_clause() -> None:
    """A misspelt id would prove nothing."""
    claimed = clauses.claimed()
    unknown = {name: tests for name, tests in claimed.items() if name not in clauses.defined()}
    assert not unknown
    assert len(claimed) > 10


def test_code_names_no_unknown_clause() -> None:
    """A reader who looks an id up in the spec must find it there."""
    known = clauses.defined()
    groups = {name.rstrip("0123456789") for name in known}
    unknown = {
        name: files
        for name, files in clauses.mentioned().items()
        if name.rstrip("0123456789") in groups and name not in known
    }
    assert not unknown
