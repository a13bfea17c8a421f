"""Kernels are part of the program: nodes that have others take no part in its runs (OFF-905)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest

from towline import Context, Pipeline, module
from towline.offload import KernelRegistry, kernel
from towline.pipeline.node_fingerprint import node_fingerprint
from towline.testing import clause

GRAPH = "sha256:the-graph"


@module
async def simulate(ctx: Context) -> None:
    """Stands for a module that uses the kernels of its program."""


@pytest.fixture
def program_module() -> Any:
    """A module that a pipeline could live in, and another one that it imports."""
    home, kernels = ModuleType("fingerprinted_program"), ModuleType("fingerprinted_kernels")
    home.kernels = kernels  # type: ignore[attr-defined]
    sys.modules[home.__name__] = home
    yield home
    del sys.modules[home.__name__]


def declared(version: int, *, name: str = "fp.step") -> Any:
    """One kernel, as a build of the program would declare it."""

    def step(old: Any, new: Any) -> None:
        new[...] = old

    return kernel(name, version=version, executor="thread", registry=KernelRegistry())(step)


def fingerprint(home: ModuleType) -> str:
    """What a node with this module says."""
    program = Pipeline("p", [simulate]).program
    return node_fingerprint(msgspec.structs.replace(program, module_name=home.__name__), GRAPH)


@clause("OFF-905")
def test_another_version_of_a_kernel_is_another_program(program_module: Any) -> None:
    """Its results would differ, so its node is refused when it registers, and its agent when it is dialled."""
    assert fingerprint(program_module) == GRAPH
    program_module.kernels.step = declared(1)
    first = fingerprint(program_module)
    program_module.kernels.step = declared(2)
    second = fingerprint(program_module)
    program_module.kernels.step = declared(1)

    assert len({GRAPH, first, second}) == 3
    assert fingerprint(program_module) == first


@clause("OFF-905")
def test_kernels_that_only_this_process_has_loaded_do_not_count(program_module: Any) -> None:
    """A worker that served another run, or a master that was started by a larger script, has more of them loaded."""
    program_module.step = declared(1)
    before = fingerprint(program_module)
    elsewhere = ModuleType("fingerprinted_elsewhere")
    elsewhere.other = declared(1, name="fp.other")  # type: ignore[attr-defined]
    sys.modules[elsewhere.__name__] = elsewhere
    try:
        assert fingerprint(program_module) == before
    finally:
        del sys.modules[elsewhere.__name__]
