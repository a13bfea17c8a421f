"""``towline offload worker``: hands over to the kernel worker, or says that the extra is missing."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def serve_kernels(arguments: Sequence[str]) -> int:
    """Serve the kernels of a module until told to end; the worker reads its own flags and returns the exit code.

    Raises:
        UsageError: The extra is not installed.
    """
    if find_spec("numpy") is None:
        raise click.UsageError("offload needs numpy, which is not installed: pip install 'towline[offload]'")
    given = list(arguments)
    threads = given[given.index("--blas-threads") + 1 :][:1] if "--blas-threads" in given else ["1"]
    for variable in BLAS_VARIABLES:
        # OpenBLAS reads them once, when numpy is loaded, which the next import does (OFF-421).
        os.environ.setdefault(variable, threads[0] if threads else "1")
    from towline.offload.worker import main

    return main(given)
