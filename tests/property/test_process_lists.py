"""Merging the process lists of a GPU: the larger value wins, in whatever order the entries come."""

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.gpu.process_lists import ListedProcess, merge

ENTRIES = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.one_of(st.none(), st.integers(0, 1 << 40)),
        st.sampled_from(["compute", "graphics", "mps"]),
    ),
    max_size=24,
)


@given(entries=ENTRIES, data=st.data())
def test_the_order_of_the_entries_does_not_matter(entries: list[ListedProcess], data: st.DataObject) -> None:
    assert merge(data.draw(st.permutations(entries))) == merge(entries)


@given(entries=ENTRIES)
def test_every_pid_stands_once_with_its_largest_known_size(entries: list[ListedProcess]) -> None:
    merged = merge(entries)
    assert [process.pid for process in merged] == sorted({pid for pid, _, _ in entries})
    for process in merged:
        sizes = [used for pid, used, _ in entries if pid == process.pid]
        known = [used for used in sizes if used is not None]
        assert process.used == (max(known) if known else None)
        assert process.kinds == {kind for pid, _, kind in entries if pid == process.pid}


@given(entries=ENTRIES)
def test_merging_twice_changes_nothing(entries: list[ListedProcess]) -> None:
    merged = merge(entries)
    again: list[ListedProcess] = [(p.pid, p.used, kind) for p in merged for kind in p.kinds]
    assert merge(again) == merged
