"""`FirstBatches`: which samples the first batches of a rank have, by which ranks are compared."""

from __future__ import annotations

from typing import Any

from dmls_ray.training.observed.contents import digest_of

_MOST = 4
"""First batches that ranks are compared by."""


class FirstBatches:
    """Digests of the first batches that loaders gave, and that models were given."""

    def __init__(self) -> None:
        self._of_loader: list[int] = []
        self._of_model: list[int] = []

    def loader_read(self, leaves: list[Any]) -> None:
        """A loader gave a batch of these tensors."""
        if len(self._of_loader) < _MOST:
            self._of_loader.append(digest_of(leaves))

    def model_given(self, leaves: list[Any]) -> None:
        """A model was given these tensors."""
        if len(self._of_model) < _MOST:
            self._of_model.append(digest_of(leaves))

    def digests(self, *, trains_part: bool) -> list[int]:
        """Those that ranks share are equal on all of them.

        Args:
            trains_part: whether each rank trains a part of the batches, which all of them may read.
        """
        return self._of_model if trains_part else self._of_loader or self._of_model
