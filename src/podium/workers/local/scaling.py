"""Scale the singular values of a model's matrices, keeping each matrix's total strength.

    W' = U diag((1 + d) s) V^T x sum(s) / sum((1 + d) s)

Needs torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from podium.core.errors import ConfigError
from podium.workers.local.hidden_states import SingularScaling


class SingularParts(NamedTuple):
    """A matrix and its singular value decomposition."""

    whole: torch.Tensor
    left: torch.Tensor
    values: torch.Tensor
    right: torch.Tensor

    def scaled(self, growth: torch.Tensor) -> torch.Tensor:
        """Return the matrix with scaled singular values and the same total strength."""
        values = (1 + growth) * self.values
        if not values.sum() > 0:
            raise ConfigError("scales leave nothing of a matrix; they must be well above -1")
        energy = self.values.sum() / values.sum()
        return (self.left * (values * energy)) @ self.right


class ModelScales:
    """The scales applied to one model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._parts: dict[str, SingularParts] = {}
        self._laid_on: SingularScaling | None = None

    @torch.no_grad()
    def apply_scales(self, scaling: SingularScaling | None) -> None:
        """Scale these matrices only; None restores the model."""
        if scaling is self._laid_on:
            return
        for name in self._laid_on.matrices if self._laid_on is not None else ():
            matrix(self._model, name).copy_(self._parts[name].whole)
        self._laid_on = None
        if scaling is None:
            return
        scaled = {
            name: self._apart(name).scaled(self._growth(name, scale))
            for name, scale in zip(scaling.matrices, scaling.scales, strict=True)
        }
        for name, changed in scaled.items():
            matrix(self._model, name).copy_(changed)
        self._laid_on = scaling

    def _apart(self, name: str) -> SingularParts:
        if name not in self._parts:
            whole = matrix(self._model, name).detach().clone()
            self._parts[name] = SingularParts(
                whole, *torch.linalg.svd(whole.float(), full_matrices=False)
            )
        return self._parts[name]

    def _growth(self, name: str, scale: Any) -> torch.Tensor:
        values = self._apart(name).values
        growth = torch.as_tensor(scale, dtype=values.dtype, device=values.device)
        if growth.shape != values.shape:
            raise ConfigError(
                f"{name} has {len(values)} singular values, and there are {growth.numel()} scales"
            )
        return growth


def matrix(model: Any, name: str) -> Any:
    """Return the matrix of that name, as in `model.layers.0.mlp.up_proj.weight`."""
    try:
        found = model.get_parameter(name)
    except AttributeError:
        found = None
    if found is None or found.dim() != 2:
        some = [key for key, parameter in model.named_parameters() if parameter.dim() == 2]
        raise ConfigError(
            f"the model has no matrix {name!r}; it has {', '.join(some[:3])}, … and {some[-1]}"
        )
    return found
