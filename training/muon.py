"""Muon in fp32: momentum whose update is made orthogonal by five Newton-Schulz steps (Jordan et al., 2024).

torch.optim.Muon runs those steps in bf16. On a CPU without bf16 units that takes 1.37 s for the base's 42 matrices, in
fp32 0.33 s (one thread at 2.5 GHz, median of 3).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic that pushes every singular value towards 1
STEPS = 5


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrix of a (rows, columns) matrix, roughly: its singular values land in 0.7-1.2."""
    x = matrix.mT if matrix.size(0) > matrix.size(1) else matrix
    x = x / (x.norm() + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix.size(0) > matrix.size(1) else x


class Muon(torch.optim.Optimizer):
    """For weight matrices only; `lr` is on AdamW's scale: an update has a root mean square of 0.2, as AdamW's have."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                average = state.setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(average, group["momentum"]))
                size = 0.2 * max(matrix.shape) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * size)
