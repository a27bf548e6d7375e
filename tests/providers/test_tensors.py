"""Arrays are written to a file and found in it again."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from loom.providers.embedders.tensors import open_tensors, read_tensors, write_tensors
from tests.shared import examples

KINDS = ["<f4", "<f2", "<i8", "|i1", "|u1"]
SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(
            lambda name: name != "__metadata__"
        ),
        st.sampled_from(KINDS).flatmap(lambda kind: arrays.arrays(kind, SHAPES)),
        max_size=4,
    ),
    st.dictionaries(st.text("abc ", max_size=5), st.text("xyz", max_size=5), max_size=3),
)
def test_what_is_written_is_read(tensors: dict[str, np.ndarray], about: dict[str, str]) -> None:
    content = write_tensors(tensors, about)
    found = read_tensors(content)
    assert found.about == about
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        read = found.tensors[name]
        assert read.dtype == tensor.dtype
        assert read.shape == tensor.shape
        assert read.tobytes() == tensor.tobytes()
    assert write_tensors(dict(reversed(tensors.items())), about) == content


def test_a_file_is_mapped_and_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "some.safetensors"
    path.write_bytes(write_tensors({"a": np.arange(6, dtype=np.float32).reshape(2, 3)}, {}))
    read = open_tensors(path).tensors["a"]
    assert read.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        read[0, 0] = 9


@pytest.mark.parametrize("cut", [1, 7, 8, 40, 70])
def test_a_file_that_was_cut_is_refused(cut: int) -> None:
    content = write_tensors({"a": np.arange(6, dtype=np.float32)}, {})
    with pytest.raises(ValueError, match=r"longer than the file|truncated|malformed"):
        read_tensors(content[:-cut] if cut < 40 else content[:cut])
