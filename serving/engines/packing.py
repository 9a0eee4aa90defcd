"""Prompts that begin alike as one sequence: what they share is computed once, and nothing is padding.

The shared beginning stands first, then each prompt's own rest. A rest sees the beginning and itself; its positions go
on from the beginning's. One forward pass over this row gives what one pass a prompt would; so do several, one over each
of its spans, where those after the first are given the beginning's keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix

import torch

SHARED = 20  # tokens: more than the instruction of any task, so that a question is shared, too


@dataclass(frozen=True)
class Pack:
    """`members` are indices of rows, `ends` where the last token of each stands in `ids`; `owners` has -1 for a token
    that all share. All tensors are of shape (tokens,), but for `ends` (members,)."""

    members: list[int]
    ids: torch.Tensor
    positions: torch.Tensor
    owners: torch.Tensor
    ends: torch.Tensor

    @property
    def shared(self) -> int:
        """Tokens of the beginning."""
        return int((self.owners == -1).sum())

    def spans(self, room: int) -> Iterator[tuple[int, int]]:
        """Start and stop of parts of at most `room` tokens, or of one rest that is longer; the beginning is with the
        first."""
        start, stop = 0, int(self.ends[0]) + 1
        for end in self.ends[1:].tolist():
            if end + 1 - start > room:
                yield start, stop
                start = stop
            stop = end + 1
        yield start, stop

    def mask(self, dtype: torch.dtype, device: torch.device, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """What is added to the attention scores of a span, (1, 1, tokens, tokens that went before and these): 0 where a
        token may look, -inf elsewhere. Before a span that is not the first goes the beginning."""
        rows = torch.arange(len(self.ids))[start:stop]
        columns = torch.cat([torch.arange(self.shared), rows]) if start else rows
        owners = self.owners[columns]
        sees = ((self.owners[rows, None] == owners) | (owners == -1)) & (columns <= rows[:, None])
        return torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf)[None, None].to(device)


def pack(rows: Sequence[list[int]], room: int) -> tuple[list[Pack], list[int]]:
    """Packs, of at most `room` tokens, of the rows that share a long beginning, and the indices of the other rows."""
    packs, alone = [], []
    for members in _alike(rows, room):
        if len(members) == 1:
            alone += members
        else:
            packs.append(_packed(rows, members))
    return packs, alone


def _alike(rows: Sequence[list[int]], room: int) -> Iterator[list[int]]:
    """Groups of rows; in the order of their tokens, neighbours share most."""
    members: list[int] = []
    size = 0
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        row = rows[index]
        shared = len(commonprefix([rows[members[0]], rows[members[-1]], row])) if members else 0
        if shared < SHARED or size + len(row) - shared > room:
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
