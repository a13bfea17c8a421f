"""What decides the last bits of a result on this machine (section 4, NumericFingerprint), and how many threads BLAS uses."""

from __future__ import annotations

import functools
import platform
import sys
from importlib import import_module

import numpy as np

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip


@functools.cache
def numeric_fingerprint(blas_threads: int) -> dict[str, str]:
    """Describe numpy, its BLAS, its SIMD features and the machine. Equal texts promise equal bytes of bitwise kernels."""
    features = getattr(import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
    return {
        "numpy": np.__version__,
        "blas": _blas(),
        "threads": str(blas_threads),
        "simd": " ".join(sorted(name for name, used in features.items() if used)),
        "machine": platform.machine(),
        "longdouble": str(np.dtype(np.longdouble).itemsize),
        "python": platform.python_version(),
        "platform": sys.platform,
        "byteorder": sys.byteorder,
    }


def _blas() -> str:
    try:
        from threadpoolctl import threadpool_info  # type: ignore[import-untyped]  # it has no types
    except ImportError:  # the extra brings it; without it the library of numpy's build stands for it
        return "unknown"
    found = [
        f"{e['internal_api']} {e.get('version')} {e.get('architecture')}"
        for e in threadpool_info()
        if e["user_api"] == "blas"
    ]
    return "; ".join(sorted(set(found))) or "none"


def limit_blas_threads(count: int) -> None:
    """Pin BLAS and OpenMP of this process, where threadpoolctl is installed (OFF-421)."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    threadpool_limits(limits=count)


def thread_environment(count: int) -> dict[str, str]:
    """Return the variables that pin BLAS in a process that has not loaded numpy yet."""
    return dict.fromkeys(THREAD_VARIABLES, str(count))
