"""Registered arrays: what may be one, which version it has, what changes it."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towline.errors import BufferBusyError, BufferReleasedError, BufferTypeError, UnregisteredBufferError
from towline.offload import Array, KernelRegistry, Runtime, kernel
from towline.offload.arrays import array_over, bytes_of, read_dtype, read_only, write_dtype
from towline.offload.pieces import ArrayPlan
from towline.testing import clause

REGISTRY = KernelRegistry()


@kernel("b.copy", executor="thread", registry=REGISTRY)
def copy(source: Array, out: Array) -> None:
    out[...] = source


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(kernels=REGISTRY)


@clause("OFF-203")
def test_a_bound_array_must_be_contiguous_and_writable_when_written(runtime: Runtime) -> None:
    """A copy behind the user's back would receive the results instead of the user's array."""
    strided = np.zeros((4, 4))[:, ::2]
    frozen = np.zeros(4)
    frozen.flags.writeable = False

    with pytest.raises(BufferTypeError, match="ascontiguousarray"):
        runtime.buffer(strided)
    readable = runtime.buffer(frozen)
    with pytest.raises(BufferTypeError, match="read-only"):
        runtime.graph().add(copy, [np.zeros(4)], [readable])
    assert runtime.buffer(strided, storage="owned").shape == (4, 2)


@clause("OFF-204")
@pytest.mark.parametrize("dtype", [object, [("a", "f8"), ("b", object)]])
def test_arrays_of_objects_are_refused(runtime: Runtime, dtype: Any) -> None:
    """Their bytes are pointers, which mean nothing in another process."""
    with pytest.raises(BufferTypeError, match="objects"):
        runtime.buffer(np.zeros(2, dtype))
    with pytest.raises(BufferTypeError):
        runtime.zeros(2, dtype)


DTYPES = st.sampled_from(
    ["?", "i1", "u2", "<i4", ">i4", "<u8", "f2", "<f4", ">f8", "c8", "c16", "M8[ns]", "m8[D]", "S5", "U3", "V7"]
)


@clause("OFF-205")
@settings(max_examples=120, deadline=None)
@given(DTYPES, st.lists(st.integers(0, 4), max_size=4), st.randoms(use_true_random=False))
def test_every_dtype_and_shape_survives_the_trip(text: str, shape: list[int], random: Any) -> None:
    """Bytes, dtype and shape at the worker are those of the user's array, also for empty and 0-d ones."""
    dtype = np.dtype(text)
    size = int(np.prod(shape)) * dtype.itemsize
    source = array_over(bytearray(random.randbytes(size)), dtype, tuple(shape))
    plan = ArrayPlan(Runtime().buffer(source)._ref(1), 1 << 20)

    landed = bytearray(bytes(bytes_of(source)))
    back = array_over(landed, plan.dtype, plan.shape)

    assert back.dtype == source.dtype
    assert back.shape == source.shape
    assert back.tobytes() == source.tobytes()


@clause("OFF-205")
def test_structured_dtypes_are_written_as_field_lists() -> None:
    """Names, sub-shapes, padding and byte order of a record survive."""
    dtype = np.dtype([("id", ">u4"), ("pos", "<f8", (3,)), ("tag", "S2"), ("inner", [("x", "i2"), ("y", "f4")])])
    padded = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 24})

    assert read_dtype(write_dtype(dtype)) == dtype
    assert read_dtype(write_dtype(padded)).itemsize == 24
    for hostile in ("O", '["O"]', '[["a", "O"]]', "no dtype", "[" * 3000, '[["a"]]', "{}"):
        with pytest.raises(ValueError, match=r"dtype"):
            read_dtype(hostile)


@clause("OFF-206")
def test_one_array_is_one_buffer_and_overlaps_are_refused(runtime: Runtime) -> None:
    """Two buffers over the same memory would have two versions of one truth."""
    field = np.zeros(100)
    whole = runtime.buffer(field, name="field")

    assert runtime.buffer(field) is whole
    with pytest.raises(BufferTypeError, match="'field'"):
        runtime.buffer(field[10:20])
    with pytest.raises(BufferTypeError, match="'field'"):
        runtime.graph().add(copy, [field[:50]], [np.zeros(50)])
    whole.release()
    runtime.buffer(field[10:20])


@clause("OFF-207")
def test_buffer_protocol_and_dlpack_are_viewed_without_a_copy(runtime: Runtime) -> None:
    """Results appear in the object that the user passed."""

    class Exported:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __dlpack__(self, **options: Any) -> Any:
            return self.inner.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.inner.__dlpack_device__()

    class OnDevice(Exported):
        def __dlpack_device__(self) -> Any:
            return (2, 0)

    plain = array.array("d", [1.0, 2.0])
    inner = np.arange(3.0)

    assert np.shares_memory(runtime.buffer(plain)._data, np.asarray(memoryview(plain)))
    assert np.shares_memory(runtime.buffer(Exported(inner))._data, inner)
    with pytest.raises(BufferTypeError, match="device"):
        runtime.buffer(OnDevice(inner))
    with pytest.raises(BufferTypeError, match="no array"):
        runtime.buffer([1, 2])  # type: ignore[arg-type]


@clause("OFF-209")
@clause("OFF-211")
def test_versions_only_grow(runtime: Runtime) -> None:
    """A version names bytes for ever; an edit that failed leaves both as they were."""
    buffer = runtime.buffer(np.zeros(3))
    assert buffer.version == 1
    assert buffer.bump() == 2

    with buffer.edit() as draft:
        draft[0] = 5
        assert buffer.array[0] == 0
    with pytest.raises(ValueError, match="broadcast"), buffer.edit() as draft:
        draft[:] = np.zeros(9)

    assert (buffer.version, buffer.array[0]) == (3, 5)
    assert [entry.made_by for entry in runtime.version_log()] == ["register", "bump", "edit"]


@clause("OFF-107")
def test_a_read_view_cannot_be_made_writable() -> None:
    """A kernel that could write into its inputs would change committed bytes, or a cache."""
    source = np.zeros(4)
    for view in (read_only(source), read_only(source[::2])):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        read_only(source).flags.writeable = True


@clause("OFF-202")
def test_owned_buffers_swap_and_bound_ones_write_back(runtime: Runtime) -> None:
    """A view of an owned buffer is a snapshot for ever; a bound array is where the user looks for results."""
    mine = np.zeros(2)
    bound, owned = runtime.buffer(mine), runtime.zeros(2, float)
    before = owned.array

    with bound.edit() as draft:
        draft[:] = 1
    with owned.edit() as draft:
        draft[:] = 1

    assert mine.tolist() == [1, 1]
    assert before.tolist() == [0, 0]
    assert owned.array.tolist() == [1, 1]
    owned.snapshot()[0] = 9
    assert owned.array[0] == 1


@clause("OFF-212")
@pytest.mark.parametrize("storage", ["bound", "owned"])
def test_split_gives_children_over_the_same_bytes(runtime: Runtime, storage: Any) -> None:
    """Tiles of a matrix are separate buffers for the graph and one array for the user."""
    matrix = np.arange(24.0).reshape(2, 3, 4)
    parent = runtime.buffer(matrix, storage=storage)
    tiles = parent.split(axes=2)

    assert len(tiles) == 6
    assert [tile.shape for tile in tiles] == [(4,)] * 6
    with pytest.raises(BufferBusyError, match="split"):
        _ = parent.array
    with tiles[5].edit() as draft:
        draft[:] = -1
    parent.join()

    assert parent.array[1, 2].tolist() == [-1] * 4
    assert parent.array[0, 0].tolist() == [0, 1, 2, 3]
    assert parent.version == 2
    with pytest.raises(BufferReleasedError):
        _ = tiles[0].array
    with pytest.raises(ValueError, match="axes"):
        parent.split(axes=4)


@clause("OFF-213")
def test_a_released_buffer_is_gone_for_good(runtime: Runtime) -> None:
    """Its id is never used again, so a late message about it can only be refused."""
    first = runtime.buffer(np.zeros(2), name="first")
    first.release()
    first.release()

    for use in (lambda: first.array, first.bump, lambda: runtime.graph().add(copy, [first], [np.zeros(2)])):
        with pytest.raises(BufferReleasedError, match="first"):
            use()
    assert runtime.buffer(np.zeros(2)).id > first.id


@clause("OFF-214")
def test_a_state_exchanges_roles_while_a_graph_is_declared(runtime: Runtime) -> None:
    """One graph holds many steps, and each call keeps the buffers it was added with."""
    state = runtime.state(np.ones(4), name="field")
    first, second = state.read, state.write
    graph = runtime.graph()
    for _ in range(3):
        graph.add(copy, [state.read], [state.write])
        state.step()

    assert (state.read, state.write, state.steps) == (second, first, 3)
    assert [call.writes[0] for call in graph._declared] == [second, first, second]
    assert graph.edges() == ((0, 1), (0, 2), (1, 2))


@clause("OFF-201")
def test_an_unregistered_array_cannot_go_to_a_worker(runtime: Runtime) -> None:
    """Asking for a remote run of an array without a name is a mistake, said at once."""
    with pytest.raises(UnregisteredBufferError, match=r"runtime\.buffer"):
        runtime.graph().add(copy, [np.zeros(4)], [np.zeros(4)], place="remote")


def test_a_buffer_beyond_the_limit_is_refused() -> None:
    """A limit protects the machine before anything is allocated on another one."""
    from towline.offload import OffloadOptions

    small = Runtime(options=OffloadOptions(max_buffer_bytes=64))
    with pytest.raises(BufferTypeError, match="max_buffer_bytes"):
        small.buffer(np.zeros(9))
