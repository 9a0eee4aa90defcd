"""Prompts that begin alike as one sequence: what they share is computed once, and nothing is padding.

The shared beginning stands first, then each prompt's own rest. A rest sees the beginning and itself; its positions go
on from the beginning's. One forward pass over this row gives what one pass a prompt would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix

import torch

SHARED = 20  # tokens: more than the instruction of any task, so that a question is shared, too
TOKENS = 512  # in one pack: attention looks at every pair


@dataclass(frozen=True)
class Pack:
    """`members` are indices of rows, `ends` where the last token of each stands in `ids`; `owners` has -1 for a token
    that all share. All tensors are of shape (tokens,), but for `ends` (members,)."""

    members: list[int]
    ids: torch.Tensor
    positions: torch.Tensor
    owners: torch.Tensor
    ends: torch.Tensor

    def mask(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """What is added to the attention scores, (1, 1, tokens, tokens): 0 where a token may look, -inf elsewhere."""
        owners = self.owners.to(device)
        sees = ((owners[:, None] == owners) | (owners == -1)).tril()
        return torch.zeros(sees.shape, dtype=dtype, device=device).masked_fill_(~sees, -torch.inf)[None, None]


def pack(rows: Sequence[list[int]]) -> tuple[list[Pack], list[int]]:
    """Packs of the rows that share a long beginning, and the indices of the other rows."""
    packs, alone = [], []
    for members in _alike(rows):
        if len(members) == 1:
            alone += members
        else:
            packs.append(_packed(rows, members))
    return packs, alone


def _alike(rows: Sequence[list[int]]) -> Iterator[list[int]]:
    """Groups of rows; in the order of their tokens, neighbours share most."""
    members: list[int] = []
    size = 0
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        row = rows[index]
        shared = len(commonprefix([rows[members[0]], rows[members[-1]], row])) if members else 0
        if shared < SHARED or size + len(row) - shared > TOKENS:
            if members:
                yield members
            members, size, shared = [], 0, 0
        members.append(index)
        size += len(row) - shared
    if members:
        yield members


def _packed(rows: Sequence[list[int]], members: list[int]) -> Pack:
    own = [rows[i][:-1] for i in members]  # the last token of a row is always its own: its output is wanted
    shared = len(commonprefix(own))
    ids, positions, owners, ends = rows[members[0]][:shared], [*range(shared)], [-1] * shared, []
    for number, index in enumerate(members):
        rest = rows[index][shared:]
        ids = ids + rest
        positions += range(shared, shared + len(rest))
        owners += [number] * len(rest)
        ends.append(len(ids) - 1)
    return Pack(members, *map(torch.tensor, (ids, positions, owners, ends)))
