from __future__ import annotations

from gnomon.testing.storms.groups.generations_truth import GenerationsTruth


def truth_of(*ended: float) -> GenerationsTruth:
    """A truth of a group that may have ended at these times."""
    return GenerationsTruth(lambda since, until: any(since <= each <= until for each in ended))


def test_generations_that_grow_are_no_contradiction() -> None:
    truth = truth_of()
    truth.synced("a", "a-1", 1, 0.0, 1.0, "a/1", (0, 1))
    truth.synced("a", "a-1", 2, 2.0, 3.0, "a/2", (0,))
    life = truth.synced("b", "b-1", 2, 2.0, 3.5, "a/2", (1,))
    truth.accepted(life, "b", "b-1", 2, 4.0, "commit")
    assert (truth.wrong, truth.lives) == ([], 1)


def test_a_second_plan_of_a_generation_begins_a_new_life_only_if_the_group_may_have_ended() -> None:
    """Invariants 1 and 4."""
    truth = truth_of()
    truth.synced("a", "a-1", 1, 0.0, 1.0, "a/1", (0,))
    truth.synced("b", "b-1", 1, 5.0, 6.0, "b/1", (1,))
    assert "generation 1 has plan a/1" in truth.wrong[0]
    truth = truth_of(3.0)
    old = truth.synced("a", "a-1", 1, 0.0, 1.0, "a/1", (0,))
    truth.synced("b", "b-1", 1, 5.0, 6.0, "b/1", (1,))
    assert (truth.wrong, truth.lives) == ([], 2)
    truth.accepted(old, "a", "a-1", 1, 7.0, "commit")
    assert "begun again" in truth.wrong[0]


def test_a_lower_generation_after_a_higher_one_is_found() -> None:
    """Invariant 1."""
    truth = truth_of()
    truth.synced("a", "a-1", 3, 0.0, 1.0, "a/1", (0,))
    truth.synced("a", "a-1", 2, 2.0, 3.0, "a/2", (0,))
    assert "generation 2 was taken after 3" in truth.wrong[0]


def test_a_static_member_that_comes_back_to_other_partitions_or_to_none_is_found() -> None:
    """Invariant 2."""
    truth = truth_of()
    truth.synced("a", "a-1", 1, 0.0, 1.0, "a/1", (0, 1))
    truth.synced("a", "a-2", 1, 2.0, 3.0, "a/1", (0,))
    assert truth.wrong == ["a had (0, 1) in generation 1, and then (0,)"]
    truth = truth_of()
    truth.synced("a", "a-1", 1, 0.0, 1.0, "", ())
    assert "no assignment" in truth.wrong[0]


def test_a_request_under_the_old_id_of_a_static_member_that_succeeds_is_found() -> None:
    """Invariant 3."""
    truth = truth_of()
    truth.synced("a", "a-1", 1, 0.0, 1.0, "a/1", (0,))
    life = truth.synced("a", "a-2", 1, 2.0, 3.0, "a/1", (0,))
    truth.accepted(life, "a", "a-1", 1, 2.5, "commit")
    assert truth.wrong == []
    truth.accepted(life, "a", "a-1", 1, 3.5, "commit")
    assert "newer id" in truth.wrong[0]
