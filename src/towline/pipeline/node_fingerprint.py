"""The fingerprint that all nodes of a run share: the graph with its code, and the program's offload kernels (DIST-08, OFF-905)."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from towline.planning.digests import program_fingerprint

if TYPE_CHECKING:
    from towline.pipeline.program import Program


def node_fingerprint(program: Program, graph_digest: str) -> str:
    """Return the fingerprint of a program as this process has loaded it; without kernels it is the graph's digest."""
    kernels = _kernels_of(program.module_name)
    return program_fingerprint(graph_digest, kernels) if kernels else graph_digest


def _kernels_of(module_name: str) -> dict[str, str]:
    """Return the signatures of the kernels that the program's module names, itself or by a module that it imports.

    Not all that this process knows: which other kernels are loaded depends on who started it, and on which bodies ran here.
    """
    loaded = sys.modules.get("towline.offload.kernels")
    home = sys.modules.get(module_name)
    if loaded is None or home is None:
        return {}  # whoever declares a kernel has imported that room
    values = list(vars(home).values())
    for value in vars(home).values():
        if isinstance(value, ModuleType):
            values.extend(vars(value).values())
    return {one.kernel.name: one.kernel.signature for one in values if isinstance(one, loaded.KernelFunction)}
