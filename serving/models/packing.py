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
ROOM = 512  # tokens of a pack: attention looks at every pair


@dataclass(frozen=True)
class Pack:
    """`members` are indices of rows, `ends` where the last token of each stands in `ids`; `owners` has -1 for a token
    that all share. All tensors are of shape (tokens,), but for `ends` (members,)."""

    members: list[int]
    ids: torch.Tensor
    positions: torch.Tensor
    owners: torch.Tensor
    ends: torch.Tensor

    def make_mask(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """What is added to the attention scores, (1, 1, tokens, tokens): 0 where a token may look, -inf elsewhere."""
        owners = self.owners
        sees = ((owners[:, None] == owners) | (owners == -1)) & torch.ones(len(owners), len(owners)).tril().bool()
        return torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf)[None, None].to(device)


def pack(rows: Sequence[list[int]]) -> tuple[list[Pack], list[int]]:
    """Packs, of at most `ROOM` tokens, of the rows that share a long beginning, and the indices of the other
    rows."""
    packs, alone = [], []
    for members in _group_alike(rows):
        if len(members) == 1:
            alone += members
        else:
            packs.append(_make_pack(rows, members))
    return packs, alone


def _group_alike(rows: Sequence[list[int]]) -> Iterator[list[int]]:
    """Groups of rows; in the order of their tokens, neighbours share most. A row joins where its share of the beginning
    is no less than what the others then have to read one by one."""
    members: list[int] = []
    size = shared = 0
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        row = rows[index]
        if members:
            common = len(_find_common_start(rows, [members[0], members[-1], index]))
            again = (shared - common) * (len(members) - 1)
            if common >= max(SHARED, again) and size + again + len(row) - common <= ROOM:
                members.append(index)
                size, shared = size + again + len(row) - common, common
                continue
            yield members
        members, size, shared = [index], len(row), len(row)
    if members:
        yield members


def _make_pack(rows: Sequence[list[int]], members: list[int]) -> Pack:
    shared = len(_find_common_start(rows, members))
    ids, positions, owners, ends = rows[members[0]][:shared], [*range(shared)], [-1] * shared, []
    for number, index in enumerate(members):
        rest = rows[index][shared:]
        ids += rest
        positions += range(shared, shared + len(rest))
        owners += [number] * len(rest)
        ends.append(len(ids) - 1)
    return Pack(members, *map(torch.tensor, (ids, positions, owners, ends)))


def _find_common_start(rows: Sequence[list[int]], members: list[int]) -> list[int]:
    """How rows begin; the last token of each is always its own, for its output is wanted."""
    return list(commonprefix([rows[i][:-1] for i in members]))
