"""Who a process is in a run: roles, names, options that contradict each other."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from towline.coordination.memory import MemoryCoordinators
from towline.distributed.factories import factory_of
from towline.distributed.options import DistributedOptions, parse_instance, role_of, shared_run_id, worker_id_of
from towline.errors.configuration import ConfigurationError
from towline.testing import clause

URL = "redis://127.0.0.1:1"


def options(**fields: Any) -> DistributedOptions:
    return DistributedOptions(coordinator=URL, **fields)


@clause("DIST-02")
@pytest.mark.parametrize(
    ("fields", "role"),
    [
        ({}, "master"),
        ({"index": 0, "total": 3}, "master"),
        ({"index": 2, "total": 3}, "worker"),
        ({"index": 2, "total": 3, "role": "master"}, "master"),
        ({"role": "worker"}, "worker"),
    ],
)
def test_the_role_follows_from_the_index(fields: dict[str, Any], role: str) -> None:
    """CI starts N equal jobs; only their index tells them apart."""
    assert role_of(options(**fields)) == role


@clause("DIST-02")
def test_a_process_names_itself() -> None:
    """By its index where it has one; else so that no two processes share a name."""
    assert worker_id_of(options(index=2, total=3), Random()) == "instance-2"
    names = {worker_id_of(options(role="worker"), Random(seed)) for seed in range(5)}
    assert len(names) == 5


@clause("DIST-02")
@pytest.mark.parametrize("text", ["3/3", "-1/3", "1", "a/b", "1/0", "1/2/3", ""])
def test_an_impossible_instance_is_refused(text: str) -> None:
    """Exit code 2, before anything runs, and the text shows the form."""
    with pytest.raises(ConfigurationError, match="I/N"):
        parse_instance(text)


@clause("DIST-04")
def test_all_instances_agree_on_the_run_id() -> None:
    """A CI run and its attempt name one doing; a commit would name many."""
    spread = options(index=1, total=3)
    assert shared_run_id(spread, "mine", {}) == "mine"
    environ = {"GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_SHA": "abc"}
    assert shared_run_id(spread, None, environ) == "77-2"
    assert shared_run_id(options(), None, {}) is None
    with pytest.raises(ConfigurationError, match="run-id"):
        shared_run_id(spread, None, {})


@clause("DIST-07", "COORD-C83")
@pytest.mark.parametrize(
    "fields",
    [
        {"heartbeat_interval_s": 20.0},
        {"heartbeat_interval_s": 0.0},
        {"master_timeout_s": 59.0},
        {"worker_timeout_s": 31.0},
        {"index": 3, "total": 3},
        {"drain_timeout_s": -1.0},
        {"coordinator": "memory:", "total": 2},
    ],
)
def test_options_that_contradict_each_other_are_refused(fields: dict[str, Any]) -> None:
    """When they are made, not after an hour of work."""
    with pytest.raises(ConfigurationError):
        DistributedOptions(**{"coordinator": URL, **fields})


@clause("DIST-03", "COORD-C87")
def test_a_url_or_a_factory_names_the_coordinator() -> None:
    """One setting serves both roles; an unknown scheme names those that exist."""
    own = MemoryCoordinators()
    assert factory_of(own) is own
    assert isinstance(factory_of("memory:"), MemoryCoordinators)
    assert type(factory_of(URL)).__name__ == "RedisCoordinators"
    with pytest.raises(ConfigurationError, match="redis://"):
        factory_of("carrier-pigeon://x")
