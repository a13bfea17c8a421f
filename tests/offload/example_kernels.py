"""The kernels of all examples, for workers that serve all of them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "offload"))

import heat
import matmul
import monte_carlo
import vector_add

vec_add, heat_step, multiply_add, hits = vector_add.vec_add, heat.heat_step, matmul.multiply_add, monte_carlo.hits
