from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.queue.unschedulable import KeyedHeap

UIDS = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), UIDS, st.integers(0, 3)),
        st.tuples(st.just("remove"), UIDS, st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_pops_in_the_order_of_a_sorted_list(steps: list[tuple[str, str, int]]):
    heap = KeyedHeap()
    slow: list[tuple[tuple[float, ...], str]] = []  # in the order they came
    for step, uid, number in steps:
        key = (float(number),)
        if step == "put":
            heap.put(uid, key)
            if (key, uid) not in slow:
                slow = [entry for entry in slow if entry[1] != uid] + [(key, uid)]
        elif step == "remove":
            heap.remove(uid)
            slow = [entry for entry in slow if entry[1] != uid]
        else:
            first = min(slow, key=lambda entry: entry[0], default=None)
            assert heap.peek() == first
            assert heap.pop() == (first[1] if first else None)
            if first:
                slow.remove(first)
        assert len(heap) == len(slow)
        assert set(heap) == {uid for _, uid in slow}


def test_equal_keys_are_popped_in_insertion_order():
    heap = KeyedHeap()
    for uid in "cab":
        heap.put(uid, (1.0,))

    assert [heap.pop() for _ in range(3)] == ["c", "a", "b"]


def test_changed_entries_do_not_accumulate():
    heap = KeyedHeap()
    heap.put("first", (0.0,))  # stays at the top, so that no tombstone reaches it
    for number in range(10_000):
        heap.put("u", (float(number + 1),))

    assert len(heap._heap) < 200
    assert heap.pop() == "first"
    assert heap.pop() == "u"
    assert heap.pop() is None


def test_removed_entries_do_not_accumulate():
    heap = KeyedHeap()
    heap.put("first", (0.0,))
    for number in range(10_000):
        heap.put(f"u{number}", (1.0,))
        heap.remove(f"u{number}")

    assert len(heap._heap) < 200
    assert list(heap) == ["first"]
