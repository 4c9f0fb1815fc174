"""SeenSamples of steps, by what loaders gave and what models were given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dmls_ray.training.observed.given import Given, Input
from dmls_ray.training.observed.loaders import Batch
from dmls_ray.training.observed.samples import samples_of
from dmls_ray.training.observed.seen_steps import SeenSamples, SeenStep, tokens_of, trained

STEPS = 20


def batch(size: int, *shapes: tuple[int, ...], loader: int = 1) -> Batch:
    shapes = shapes or ((size, 8),)
    return Batch(size, loader, shapes)


def given(
    *shapes: tuple[int, ...], again: bool = False, further: Sequence[int] = (), tokens: int = 0, rows: int = 0
) -> Given:
    inputs = [Input(shapes, tokens=tokens, rows=rows), *[Input(((size, 8),)) for size in further]]
    return Given(inputs, again)


def counted(*steps: SeenStep, times: int = STEPS) -> SeenSamples:
    """The samples of steps that come again and again, without the first ones."""
    return samples_of([*steps] * times, len(steps) * 4)


def per_step(*steps: SeenStep) -> float | None:
    total = counted(*steps).total
    return None if total is None else total / (len(steps) * (STEPS - 4))


@pytest.mark.parametrize(
    ("steps", "samples"),
    [
        ([SeenStep([batch(16)], [given((16, 8))])], 16),
        # a list of samples, whose tensors have no dimension of samples; and a model that no hook sees
        ([SeenStep([Batch(16, 1, ((3, 32, 32),))], [None])], 16),
        # length x batch
        ([SeenStep([batch(8, (40, 8, 16), (8,))], [given((40, 8, 16))])], 8),
        # turned in the loop
        ([SeenStep([batch(64, (64, 20, 16))], [given((20, 64, 16))])], 64),
        # a batch in four steps, whole and in parts
        ([SeenStep([batch(32)], [given((32, 8))]), *[SeenStep([], [given((32, 8))])] * 3], 32),
        ([SeenStep([batch(128)], [given((32, 8))]), *[SeenStep([], [given((32, 8))])] * 3], 32),
        # accumulation, read one by one and all at once
        ([SeenStep([batch(4)] * 4, [given((4, 8))] * 4)], 16),
        ([SeenStep([batch(16)], [given((4, 8))] * 4)], 16),
        # forward passes of all parts, and then a backward pass of each
        ([SeenStep([batch(16)], [given((4, 8), further=[4] * 3), *[given((4, 8), again=True)] * 3])], 16),
        # further passes on the same tensors, and on made ones
        ([SeenStep([batch(16)], [given((16, 8)), given((16, 8), again=True)])], 16),
        ([SeenStep([batch(16)], [given((16, 8)), given((16, 8)), given((16, 5))])], 16),
        # two views of each sample in one tensor, and in two
        ([SeenStep([batch(16, (16, 8), (16, 8))], [given((32, 8))])], 16),
        ([SeenStep([batch(16)], [given((16, 8), further=[16])])], 16),
        # two loaders, of which both are trained on, or one
        ([SeenStep([batch(8), batch(56, loader=2)], [given((64, 8))])], 64),
        ([SeenStep([batch(8), batch(56, loader=2)], [given((8, 8), further=[56])])], 64),
        ([SeenStep([batch(16), batch(64, loader=2)], [given((16, 8))])], 16),
        # a reader for two ranks, and samples that are left out in the loop
        ([SeenStep([batch(16)], [given((8, 8))])], 8),
        # samples that were joined to one row
        ([SeenStep([batch(16, (1, 512))], [given((1, 512))])], 16),
    ],
)
def test_a_step_has_the_samples_that_it_trained(steps: list[SeenStep], samples: float) -> None:
    assert per_step(*steps) == samples


def test_graphs_that_are_joined_to_one_are_counted_by_the_loader() -> None:
    nodes = [150, 171, 164, 158, 190]
    steps = [SeenStep([batch(8, (number, 16), (8,))], [given((number, 16))]) for number in nodes]
    samples = counted(*steps)
    assert samples.total == 8 * 5 * (STEPS - 4)
    assert samples.counted_by == "loader (the model was given 166.6)"


def test_a_loader_that_reads_one_batch_ahead_moves_no_sample() -> None:
    sizes = [16, 16, 16, 4] * 10
    steps = [SeenStep([], [given((size, 8))]) for size in sizes]
    for number, size in enumerate(sizes):
        # The last step of an epoch reads nothing, and the first one reads two batches.
        steps[number - 1 if number % 4 else number].batches.append(batch(size))
    assert samples_of(steps, 6).total == sum(sizes[6:])


def test_a_batch_that_was_left_out_before_or_after_its_backward_pass_is_not_trained() -> None:
    sizes = [16] * 9 + [6]
    steps = [SeenStep([batch(size)], [given((size, 8))]) for size in sizes * 4]
    steps[12].batches.insert(0, batch(6))
    steps[12].unused = [given((6, 8))]
    steps[21].batches.insert(0, batch(16))
    steps[21].dropped = [given((16, 8))]
    assert samples_of(trained(steps), 10).total == 3 * sum(sizes)


def test_gradients_of_each_step_that_are_kept_elsewhere_are_trained() -> None:
    steps = [SeenStep([batch(8)], [given((2, 8))], dropped=[given((2, 8))] * 3)] * 20
    assert samples_of(trained(steps), 5).total == 8 * 15


def test_gradients_of_most_steps_that_are_dropped_in_changing_number_leave_samples_unknown() -> None:
    steps = [SeenStep([batch(8)] * (1 + n), [given((8, 8))], dropped=[given((8, 8))] * n) for n in (1, 3, 2, 1, 0) * 4]
    assert samples_of(trained(steps), 5).unknown.startswith("gradients of most steps were dropped")


def test_batches_of_other_sizes_are_summed_up() -> None:
    sizes = [3, 17, 5, 40, 2, 9, 11] * 6
    steps = [SeenStep([batch(size)], [None]) for size in sizes]
    assert samples_of(steps, 5).total == sum(sizes[5:])


def test_batches_that_were_read_before_the_training_are_known_by_their_size() -> None:
    first = SeenStep([batch(8, (40, 8, 16))] * 5, [None])
    steps = [first, *[SeenStep([], [given((40, 8, 16))])] * 20]
    assert samples_of(steps, 5).total == 8 * 16


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (SeenStep([batch(32)], [given((48, 8))]), "loader: 32, model: 48"),
        # packed to fewer rows, or left out by the loader's collate_fn
        (SeenStep([batch(8, (5, 16))], [given((5, 16))]), "loader: 8, model: 5"),
        (SeenStep([batch(32)], [given((64, 8))]), "loader: 32, model: 64"),
        (SeenStep([batch(32)], [given((32, 8), further=[8])]), "loader: 32, model: 40"),
        (SeenStep([], [given((16, 8), further=[4])]), "several tensors"),
        (SeenStep([], [given((186,), (9,))]), "tensors of several lengths"),
        (SeenStep([], [given((133,), rows=22)]), "returns 22 rows for 133"),
        (SeenStep([batch(1, (1, 20, 8))], [given((20, 8), rows=20)]), "loader: 1, model: 20"),
        (SeenStep([], [given((16, 20), tokens=320)]), "model of tokens"),
        (SeenStep([], [given((16, 8)), given((16, 8))]), "several backward passes a step"),
        (SeenStep([], [None]), "no model was seen"),
        (SeenStep([Batch(0, 1)], [None]), "no model was seen"),
    ],
)
def test_evidence_that_is_missing_or_contradicts_itself_leaves_samples_unknown(step: SeenStep, reason: str) -> None:
    samples = counted(step)
    assert samples.total is None
    assert reason in samples.unknown
    assert samples.counted_by == ""


def test_a_model_that_is_given_each_row_twice_leaves_samples_unknown_without_a_loader() -> None:
    twice = given((16, 8))
    twice.has_rows_twice = True
    steps = [SeenStep([], [twice]), *[SeenStep([], [given((16, 8))])] * 20]
    assert samples_of(steps, 5).unknown == "no loader, and a model that is given each row twice"
    with_loader = [SeenStep([batch(16)], [twice])] * 20
    assert samples_of(with_loader, 5).total == 16 * 15


def test_a_batch_in_parts_or_again_is_not_known_where_no_model_is_seen() -> None:
    echo = [SeenStep([batch(32)], [None]), *[SeenStep([], [None])] * 3]
    assert counted(*echo).unknown == "16 batches were read for 64 backward passes, and no model was seen"


def test_batches_of_a_second_loader_that_were_kept_in_memory_leave_samples_unknown() -> None:
    first = SeenStep([batch(16), batch(8, loader=2)], [given((16, 8), further=[8])])
    later = SeenStep([batch(16)], [given((16, 8), further=[8])])
    assert samples_of([*[first] * 5, *[later] * 20], 5).unknown == "loader: 16, model: 24"
    assert samples_of([first] * 25, 5).total == 24 * 20


def test_batches_of_which_some_are_parts_are_counted_as_they_were_given() -> None:
    steps = [SeenStep([batch(16)], [given((5 if number % 4 == 0 else 16, 8))]) for number in range(24)]
    assert samples_of(steps, 4).total == 5 * 5 + 15 * 16


def test_a_joined_memory_in_some_steps_leaves_samples_unknown() -> None:
    steps = [SeenStep([batch(16)], [given((32 if number % 12 == 7 else 16, 8))]) for number in range(30)]
    assert samples_of(steps, 5).unknown.startswith("loader: 16, model: 17")


def test_a_further_pass_in_some_steps_leaves_samples_unknown_unless_another_optimizer_applies_it() -> None:
    usual, another = given((16, 8)), given((16, 8))
    steps = [SeenStep([batch(16)], [usual, another] if number % 5 == 4 else [usual]) for number in range(25)]
    assert samples_of(steps, 5).unknown == "loader: 16, model: 19.2"
    another.is_of_another = True
    assert samples_of(steps, 5).total == 16 * 20


def test_a_length_that_is_the_size_of_the_last_batch_is_no_number_of_samples() -> None:
    sizes = [16] * 9 + [4]
    steps = [SeenStep([batch(size, (size, 4, 8))], [given((4, size, 8))]) for size in sizes * 3]
    assert samples_of(steps, 10).total == 2 * sum(sizes)


def test_a_second_batch_in_every_fourth_step_is_counted() -> None:
    usual = SeenStep([batch(16)], [given((16, 8))])
    with_another = SeenStep([batch(16), batch(7, loader=2)], [given((16, 8), further=[7])])
    assert samples_of([usual, usual, usual, with_another] * 10, 4).total == (4 * 16 + 7) * 9


def test_without_a_loader_the_model_says_what_it_is_given_first() -> None:
    samples = counted(SeenStep([], [given((16, 8))]))
    assert samples.total == 16 * (STEPS - 4)
    assert samples.counted_by == "model"
    assert samples_of([SeenStep([], [given((16, 8, 4))])] * 9, 2, is_sequence_first=True).total is None


def test_the_count_of_the_code_itself_comes_first() -> None:
    samples = counted(SeenStep([batch(16)], [given((16, 8))], counted_samples=5))
    assert samples.total == 5 * (STEPS - 4)
    assert samples.counted_by == "user"


def test_tokens_are_integers_that_have_a_dimension_of_samples() -> None:
    texts = SeenStep([batch(16, (16, 20))], [given((16, 20), tokens=320)])
    edges = SeenStep([batch(16, (2, 490))], [given((2, 490), tokens=980)])
    assert tokens_of([texts] * 3) == 960
    assert tokens_of([edges] * 3) == 0
