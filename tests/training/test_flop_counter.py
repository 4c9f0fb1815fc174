"""The operations of a step, against counts by hand, and what the formulas of the installed PyTorch count by themselves.

A multiplication with its addition is two operations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from dmls_ray.training.flop_counter import FlopCounter
from tests.training.counted_models import GPT, gpt_operations, residual_network, residual_operations

ROWS, WIDTH = 4, 8
PRODUCT = 2 * ROWS * WIDTH * WIDTH
"""Operations of one product of a block."""


def count(step: Callable[[], object]) -> FlopCounter:
    counter = FlopCounter()
    with counter:
        step()
    return counter


def operations(step: Callable[[], object]) -> tuple[int, int]:
    """Those of the model and those of the hardware."""
    counter = count(step)
    assert not counter.unseen
    return sum(counter.model.values()), sum(counter.hardware.values())


def by_pytorch(step: Callable[[], object]) -> int:
    """What PyTorch's own counter says."""
    with FlopCounterMode(display=False) as mode:
        step()
    return mode.get_total_flops()


def block() -> tuple[nn.Module, Tensor]:
    """A block of two products, and an input that needs a gradient, as within a model."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)), torch.ones(ROWS, WIDTH, requires_grad=True)


@pytest.mark.parametrize(("reentrant", "products"), [(None, 6), (False, 7), (True, 8)])
def test_a_block_has_six_products_and_checkpointing_adds_to_those_of_the_hardware_alone(
    reentrant: bool | None, products: int
) -> None:
    model, given = block()

    def step() -> None:
        output = model(given) if reentrant is None else checkpoint(model, given, use_reentrant=reentrant)
        output.sum().backward()

    assert operations(step) == (6 * PRODUCT, products * PRODUCT)
    assert by_pytorch(step) == products * PRODUCT


def test_nested_checkpoints_are_computed_again_within_each_other() -> None:
    model, given = block()

    def inner(x: Tensor) -> Tensor:
        return checkpoint(model, x, use_reentrant=True)  # type: ignore[no-any-return]

    model_alone, hardware = operations(lambda: checkpoint(inner, given, use_reentrant=True).sum().backward())
    assert (model_alone, hardware) == (6 * PRODUCT, 10 * PRODUCT)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_function_of_ones_own_in_a_checkpoint_is_computed_again(reentrant: bool) -> None:
    left, right = factors()

    def product(left: Tensor, right: Tensor) -> Tensor:
        result: Tensor = Product.apply(left, right)  # type: ignore[no-untyped-call]
        return result

    step = lambda: checkpoint(product, left, right, use_reentrant=reentrant).sum().backward()  # noqa: E731
    assert operations(step) == (3 * PRODUCT, 4 * PRODUCT)


class ByHand(torch.autograd.Function):
    """Checkpointing by the code of a program."""

    @staticmethod
    def forward(context: Any, model: nn.Module, given: Tensor) -> Tensor:
        context.model = model
        context.save_for_backward(given)
        output: Tensor = model(given)
        return output

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        given = context.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            output = context.model(given)
        torch.autograd.backward(output, gradient)
        return None, given.grad


def test_checkpointing_by_hand_is_told_by_the_model_that_is_called_again() -> None:
    model, given = block()
    step = lambda: ByHand.apply(model, given).sum().backward()  # type: ignore[no-untyped-call]  # noqa: E731
    assert operations(step) == (6 * PRODUCT, 8 * PRODUCT)


def test_the_products_of_second_derivatives_are_those_of_the_model() -> None:
    model, given = block()

    def step() -> None:
        (gradient,) = torch.autograd.grad(model(given).square().sum(), given, create_graph=True)
        gradient.square().sum().backward()

    # 2 forward, 2 for the gradient of the input, 4 for the gradients of these two, 4 of the first pass.
    assert operations(step) == (12 * PRODUCT, 12 * PRODUCT)


def test_attention_on_the_cpu_has_six_products_and_computes_the_scores_again() -> None:
    batch, heads, length, width = 2, 3, 10, 8
    given = [torch.ones(batch, heads, length, width, requires_grad=True) for _ in range(3)]
    product = 2 * batch * heads * length * length * width

    def step() -> None:
        scaled_dot_product_attention(*given, is_causal=True).sum().backward()

    assert operations(step) == (6 * product, 7 * product)
    assert by_pytorch(step) == 0, "PyTorch has a formula now: leave ours out"


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_both_gradients_of_a_convolution_have_its_products(kind: Any, groups: int) -> None:
    layer, given = kind(8, 16, 3, groups=groups, padding=1), torch.ones(2, 8, 6, 6, requires_grad=True)
    by_hand = 3 * 2 * (2 * 6 * 6) * 16 * 8 * 9 // groups
    assert operations(lambda: layer(given).sum().backward()) == (by_hand, by_hand)
    # The gradient of the weight counts all groups together.
    assert (by_pytorch(lambda: layer(given).sum().backward()) == by_hand) == (groups == 1)


def test_a_strided_convolution_counts_the_positions_of_its_output() -> None:
    layer, given = nn.Conv2d(4, 8, 3, stride=2, padding=1), torch.ones(2, 4, 8, 8, requires_grad=True)
    by_hand = 3 * 2 * (2 * 4 * 4) * 8 * 4 * 9
    assert operations(lambda: layer(given).sum().backward()) == (by_hand, by_hand)


def test_a_recurrent_network_of_plain_products_is_counted() -> None:
    batch, length, given, hidden = 2, 5, 8, 16
    network = nn.GRU(given, hidden, batch_first=True)
    forward = 2 * batch * length * 3 * hidden * (given + hidden)
    # Neither the input nor the first state needs a gradient.
    backward = 2 * forward - 2 * batch * 3 * hidden * (length * given + hidden)
    assert operations(lambda: network(torch.ones(batch, length, given))[0].sum().backward())[0] == forward + backward


def test_a_transformer_agrees_with_the_count_by_hand() -> None:
    model = GPT()
    tokens = torch.zeros(4, model.length, dtype=torch.long)
    model_alone, hardware = operations(lambda: cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward())
    assert model_alone == pytest.approx(gpt_operations(4), rel=0.02)
    assert hardware > model_alone, "attention computes its scores again"


def test_a_residual_network_agrees_with_the_count_by_hand() -> None:
    model = residual_network()
    step = lambda: model(torch.ones(4, 3, 16, 16)).sum().backward()  # noqa: E731
    assert operations(step)[0] == pytest.approx(residual_operations(4), rel=0.02)


def test_products_count_in_the_number_format_in_which_they_are_computed() -> None:
    model, given = block()

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(given)
        output.float().sum().backward()

    assert count(step).model == {torch.bfloat16: 6 * PRODUCT}


def test_what_an_optimizer_computes_is_of_the_hardware_alone() -> None:
    counter = FlopCounter()
    with counter, torch.no_grad():
        counter.in_optimizer = True
        torch.ones(ROWS, WIDTH) @ torch.ones(WIDTH, WIDTH)
    assert (dict(counter.model), dict(counter.hardware)) == ({}, {torch.float32: PRODUCT})


def test_a_model_that_a_closure_of_the_optimizer_computes_is_not_taken_for_the_optimizer() -> None:
    model, given = nn.Linear(WIDTH, WIDTH), torch.ones(ROWS, WIDTH)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(given).square().mean()
        loss.backward()
        return loss

    counter = FlopCounter()
    with counter:
        counter.in_optimizer = True
        optimizer.step(closure)
    assert "closure" in counter.unseen


def test_products_of_integers_and_of_tensors_without_values_are_no_operations() -> None:
    counter = FlopCounter()
    with counter:
        torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64)
        torch.empty(2, 2, device="meta") @ torch.empty(2, 2, device="meta")
    assert (dict(counter.hardware), counter.unseen) == ({}, "")


class Product(torch.autograd.Function):
    """A product of operators of PyTorch."""

    @staticmethod
    def forward(context: Any, left: Tensor, right: Tensor) -> Tensor:
        context.save_for_backward(left, right)
        return left @ right

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        left, right = context.saved_tensors
        return gradient @ right.T, left.T @ gradient


class Kernel(torch.autograd.Function):
    """A product that PyTorch does not see."""

    @staticmethod
    def forward(context: Any, left: Tensor, right: Tensor) -> Tensor:
        result = torch.empty(left.shape[0], right.shape[1])
        np.matmul(left.detach().numpy(), right.detach().numpy(), out=result.numpy())
        return result

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        return None, None


@torch.library.custom_op("dmls_ray_tests::product", mutates_args=())
def custom_product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def factors() -> tuple[Tensor, Tensor]:
    return torch.ones(ROWS, WIDTH, requires_grad=True), torch.ones(WIDTH, WIDTH, requires_grad=True)


def test_a_function_of_ones_own_counts_by_its_operators() -> None:
    assert operations(lambda: Product.apply(*factors()).sum().backward())[0] == 3 * PRODUCT  # type: ignore[no-untyped-call]


def lstm() -> None:
    nn.LSTM(WIDTH, WIDTH)(torch.ones(2, ROWS, WIDTH))[0].sum().backward()


def sparse() -> None:
    torch.sparse.mm(torch.eye(WIDTH).to_sparse(), torch.ones(WIDTH, ROWS))


def compressed() -> None:
    with torch.no_grad():
        torch.eye(WIDTH).to_sparse_csr() @ torch.ones(WIDTH, ROWS)


def in_inference_mode() -> None:
    with torch.inference_mode():
        nn.Linear(WIDTH, WIDTH)(torch.ones(ROWS, WIDTH))


def distances() -> None:
    with torch.no_grad():
        torch.cdist(torch.ones(ROWS, WIDTH), torch.ones(ROWS, WIDTH))


def frozen_encoder() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, batch_first=True).eval()
    with torch.no_grad():
        layer(torch.ones(1, ROWS, WIDTH))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lstm, "rnn"),
        (lambda: nn.Bilinear(4, 5, 6)(torch.ones(3, 4), torch.ones(3, 5)), "_trilinear"),
        (lambda: custom_product(*factors()), "dmls_ray_tests::product"),
        (lambda: Kernel.apply(*factors()).sum(), "no operator"),  # type: ignore[no-untyped-call]
        (sparse, "sparse"),
        (compressed, "sparse"),
        (in_inference_mode, "aten::linear"),
        (distances, "_cdist_forward"),
        (lambda: torch.matrix_exp(torch.eye(WIDTH)), "matrix_exp"),
        (lambda: torch.conv_tbc(torch.ones(5, 2, 3), torch.ones(3, 3, 4), torch.ones(4)), "conv_tbc"),
        (frozen_encoder, "_transformer_encoder_layer_fwd"),
    ],
)
def test_operations_that_are_not_counted_are_named(step: Callable[[], object], reason: str) -> None:
    assert reason in count(step).unseen


def test_a_custom_operator_with_a_formula_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(flop_registry, torch.ops.dmls_ray_tests.product, flop_registry[torch.ops.aten.mm])
    assert operations(lambda: custom_product(*factors()))[0] == PRODUCT


def test_memory_that_operators_fill_is_of_no_unseen_kernel() -> None:
    def step() -> None:
        given = torch.empty(ROWS, WIDTH).normal_()
        parts = torch.empty(2, ROWS, WIDTH)
        parts[0].copy_(given)
        parts[1].zero_()
        torch.mm(parts[0], torch.empty_like(given).fill_(1).T, out=torch.empty(ROWS, ROWS))
        model, _ = block()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(given).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    assert not count(step).unseen


def test_a_function_that_is_compiled_while_operations_are_counted_works_as_ever() -> None:
    model, given = block()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = model(given)
    with FlopCounter():
        assert torch.equal(compiled(given), expected)


def test_counting_changes_no_bit_of_a_training() -> None:
    def losses(*, counted: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.Flatten(), nn.Linear(8 * 36, 4))
        optimizer = torch.optim.AdamW(model.parameters())
        found = []
        for number in range(4):
            counter = FlopCounter() if counted and number == 1 else nullcontext()
            with counter:
                loss = model(torch.randn(4, 3, 8, 8)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            found.append(loss.item())
        return found

    assert losses(counted=True) == losses(counted=False)


class Mode(TorchDispatchMode):
    """A mode of a program."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_program_sees_what_it_would_see() -> None:
    model, given = block()
    alone, within = Mode(), Mode()
    with alone:
        model(given)
    with FlopCounter(), within:
        model(given)
    assert alone.seen == within.seen
