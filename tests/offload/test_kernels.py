"""Kernels are named, typed and checked where they are declared and added."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import DuplicateKernelError, KernelDeclarationError, ParameterError, UnknownKernelError
from towline.offload import Array, KernelRegistry, Runtime, kernel
from towline.offload.messages import CallMessage
from towline.offload.parameters import ParamSpec, bind_params
from towline.testing import clause


def declare(name: str = "k", **settings: Any) -> Any:
    return kernel(name, executor="thread", registry=KernelRegistry(), **settings)


@clause("OFF-101")
def test_signatures_agree_exactly_when_declarations_do() -> None:
    """Code never travels, so two nodes must be able to tell by digest that they mean the same function."""

    def first(a: Array, out: Array, *, n: int) -> None: ...
    def same(b: Array, result: Array, *, n: int) -> None: ...
    def other(a: Array, out: Array, *, n: float) -> None: ...

    assert declare()(first).kernel.signature == declare()(same).kernel.signature
    assert declare()(first).kernel.signature != declare()(other).kernel.signature
    assert declare()(first).kernel.signature != declare(version=2)(first).kernel.signature


@clause("OFF-102")
def test_a_second_function_of_one_name_is_refused() -> None:
    """The name is all that travels: two meanings of it would compute wrong bytes in silence."""
    registry = KernelRegistry()

    def mine(out: Array) -> None: ...
    def yours(out: Array) -> None: ...

    declared = kernel("same", executor="thread", registry=registry)(mine)
    registry.register(declared)
    with pytest.raises(DuplicateKernelError, match=r"mine.*yours"):
        kernel("same", executor="thread", registry=registry)(yours)


@clause("OFF-103")
@pytest.mark.parametrize(
    ("settings", "field"),
    [({"name": "Upper"}, "name"), ({"name": ""}, "name"), ({"version": 0}, "version"), ({"version": True}, "version"),
     ({"determinism": "maybe"}, "determinism"), ({"time_limit_s": 0}, "time_limit_s"), ({"time_limit_s": math.nan}, "time_limit_s"),
     ({"min_offload_bytes": -1}, "min_offload_bytes"), ({"device": "tpu"}, "device")],
)  # fmt: skip
def test_a_wrong_declaration_names_its_field(settings: dict[str, Any], field: str) -> None:
    """A mistake is found when the file is imported, not in the middle of a run on another machine."""
    with pytest.raises(KernelDeclarationError, match=field):
        declare(**settings)


@clause("OFF-103", "OFF-104")
def test_arrays_by_position_parameters_by_keyword() -> None:
    """What travels as bytes and what travels as a typed value is visible in the signature."""

    def right(a: Array, b: Array, /, out: Array, *, n: int, scale: float = 1.0, names: list[str] = []) -> None: ...  # noqa: B006
    def default(a: Array, out: Array = None) -> None: ...  # type: ignore[assignment]
    def untyped(out: Array, *, n) -> None: ...  # type: ignore[no-untyped-def]
    def mapping(out: Array, *, n: dict[str, int]) -> None: ...
    def many(*arrays: Array) -> None: ...

    record = declare()(right).kernel

    assert (record.reads, record.writes) == (2, 1)
    assert [(p.name, p.type, p.required) for p in record.params] == [
        ("n", "int", True), ("scale", "float", False), ("names", "list[str]", False),
    ]  # fmt: skip
    for wrong in (default, untyped, mapping, many):
        with pytest.raises(KernelDeclarationError):
            declare()(wrong)


@clause("OFF-104")
def test_a_variadic_kernel_takes_two_lists() -> None:
    """A reduction over any number of tiles is one kernel, not one per count."""

    def three(reads: Any, writes: Any, more: Any) -> None: ...

    with pytest.raises(KernelDeclarationError, match="two positional"):
        declare(variadic=True)(three)


@clause("OFF-105")
@pytest.mark.parametrize(
    ("params", "named"),
    [({}, "n"), ({"n": 1, "m": 2}, "m"), ({"n": 1.5}, "n"), ({"n": True}, "n"), ({"n": 1 << 63}, "64 bits"),
     ({"n": 1, "text": "x" * 20_000}, "16384")],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_refused_at_add(params: dict[str, Any], named: str) -> None:
    """Nothing is dropped or rounded in silence on its way to a worker."""

    def body(out: Array, *, n: int, text: str = "") -> None: ...

    graph = Runtime().graph()
    with pytest.raises(ParameterError, match=named):
        graph.add(declare()(body), [], [np.zeros(1)], params)


@clause("OFF-105")
def test_a_wrong_number_of_arrays_is_refused_at_add() -> None:
    """With ``/`` in the signature even swapped counts are seen."""

    def loose(a: Array, out: Array) -> None: ...
    def strict(a: Array, /, out: Array) -> None: ...

    a, b = np.zeros(1), np.zeros(1)
    graph = Runtime().graph()
    with pytest.raises(ParameterError, match="2 in all"):
        graph.add(declare()(loose), [a], [])
    with pytest.raises(ParameterError, match="1 reads and 1 writes"):
        graph.add(declare()(strict), [], [a, b])


SCALARS = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.text(max_size=20), st.binary(max_size=20)
)


@clause("OFF-106")
@settings(max_examples=150, deadline=None)
@given(
    st.one_of(SCALARS, st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5), st.lists(st.floats(), max_size=5))
)
def test_a_parameter_arrives_with_the_type_and_bits_it_had(value: Any) -> None:
    """A float that lost its NaN payload, or an int that became a float, would make results differ by node."""
    element = value[0] if isinstance(value, list) and value else value
    kind = f"list[{type(element).__name__}]" if isinstance(value, list) else type(value).__name__
    if kind == "list[list]":
        kind = "list[int]"
    bound = bind_params("k", [ParamSpec("p", kind)], {"p": value})

    message = CallMessage(1, 2, 1, 3, bound)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=CallMessage).params["p"]

    assert type(back) is type(value)
    for mine, theirs in zip(_items(value), _items(back), strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, float):
            assert struct.pack("<d", mine) == struct.pack("<d", theirs)
        else:
            assert mine == theirs


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@clause("OFF-306")
def test_an_unknown_name_shows_the_nearest() -> None:
    """A typo in a kernel name is answered with the name that was meant."""
    runtime = Runtime(kernels=KernelRegistry())

    def body(out: Array) -> None: ...

    kernel("vec.add", executor="thread", registry=runtime._kernels)(body)
    with pytest.raises(UnknownKernelError, match=r"vec\.add"):
        runtime.graph().add("vec.ad", [], [np.zeros(1)])
    with pytest.raises(UnknownKernelError):
        runtime.graph().add(None)  # type: ignore[call-overload]


@clause("OFF-114")
def test_a_nested_function_cannot_run_in_a_process() -> None:
    """A child process finds kernels by name; one inside a function has none."""
    with pytest.raises(KernelDeclarationError, match="nested"):

        @kernel("nested", registry=KernelRegistry())
        def nested(out: Array) -> None: ...


@clause("OFF-114")
def test_a_script_is_loaded_without_running_its_main_part(tmp_path: Any) -> None:
    """Loading the user's program in a worker must not start the user's program."""
    script = tmp_path / "script_of_kernels.py"
    script.write_text(
        "from towline.offload import Array, kernel\n"
        "@kernel('script.k')\ndef k(out: Array) -> None: ...\n"
        "if __name__ == '__main__':\n    raise SystemExit('must not run')\n"
    )

    registry = KernelRegistry.from_module(str(script))

    assert registry.names() == ("script.k",)
    assert registry.get("script.k").home == str(script)
    with pytest.raises(FileNotFoundError):
        KernelRegistry.from_module(str(tmp_path / "absent.py"))
