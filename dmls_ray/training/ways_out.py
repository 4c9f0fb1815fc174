"""What helps against errors of PyTorch whose messages do not say it, or name arguments that no flag sets."""

from __future__ import annotations

from dmls_ray.util.text import first_line

_UNUSED = "Expected to have finished reduction in the prior iteration"
_TWICE = "to mark a variable ready only once"

_OF_FLAGS = {
    _UNUSED: (
        "some parameters had no part in the loss of a step; if they never have, as in a head that is not used, give "
        "--static-graph true; if they have in other steps, as in a block that is skipped at random, add its output "
        "times 0"
    ),
    _TWICE: "give --static-graph true, or call checkpoint() with use_reentrant=False",
}
"""Part of a message -> what helps where dmls_ray has put the model under DDP."""

_OF_FUNCTIONS = {
    _UNUSED: (
        "some parameters had no part in the loss of a step; give DistributedDataParallel static_graph=True if they "
        "never have, else find_unused_parameters=True"
    ),
    _TWICE: "give DistributedDataParallel static_graph=True, or call checkpoint() with use_reentrant=False",
}
"""The same where the user's function has."""

_ALWAYS = {
    "initialize the default process group twice": (
        "dmls_ray has made the process group; call init_process_group() only if not torch.distributed.is_initialized()"
    ),
    "Default process group has not been initialized": (
        "a run of one rank has no process group; use it only if torch.distributed.is_initialized()"
    ),
    "doesn't have any parameter that requires a gradient": "leave a parameter with requires_grad=True",
    "optimizer got an empty parameter list": "give it the parameters of a model with some that require a gradient",
    "does not require grad and does not have a grad_fn": (
        "the loss depends on no parameter that requires a gradient; leave out detach(), no_grad(), requires_grad=False"
    ),
    "grad can be implicitly created only for scalar outputs": "the loss has to be one number; take its mean or its sum",
    "use an uninitialized parameter": "a lazy layer gets its size in a forward pass; call the model once before",
    "Expected more than 1 value per channel when training": (
        "batch normalisation needs 2 samples; choose a batch that leaves no batch of 1, or drop the last one"
    ),
}
"""Part of a message -> what helps anywhere."""


def describe_error(error: BaseException, *, has_flags: bool) -> str:
    """The kind and the message of an error in one line, and what helps where that is known.

    Args:
        error: what was raised.
        has_flags: whether the loop is that of dmls_ray, which flags set.
    """
    message = first_line(error, empty="")
    known = {**_ALWAYS, **(_OF_FLAGS if has_flags else _OF_FUNCTIONS)}
    help_ = next((text for part, text in known.items() if part in message), "")
    if help_:
        # The message goes on with advice of its own, which holds for other programs.
        message = f"{message.partition('. ')[0].rstrip('.!')}: {help_}."
    return f"{type(error).__name__}: {message}".rstrip(": ")
