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
LONGEST = 512  # tokens of a row in a pack: attention looks at every pair of a pass


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

    def split_spans(self, room: int) -> Iterator[tuple[int, int]]:
        """Start and stop of parts of at most `room` tokens, or of one rest, however long; the beginning is with the
        first."""
        start, stop = 0, int(self.ends[0]) + 1
        for end in self.ends[1:].tolist():
            if end + 1 - start > room:
                yield start, stop
                start = stop
            stop = end + 1
        yield start, stop

    def make_mask(
        self, dtype: torch.dtype, device: torch.device, start: int = 0, stop: int | None = None
    ) -> torch.Tensor:
        """What is added to the attention scores of a span, (1, 1, tokens, tokens that went before and these): 0 where a
        token may look, -inf elsewhere. Before a span that is not the first goes the beginning."""
        rows = torch.arange(len(self.ids))[start:stop]
        columns = torch.cat([torch.arange(self.shared), rows]) if start else rows
        owners = self.owners[columns]
        sees = ((self.owners[rows, None] == owners) | (owners == -1)) & (columns <= rows[:, None])
        return torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, -torch.inf)[None, None].to(device)


def pack(rows: Sequence[list[int]], room: int) -> tuple[list[Pack], list[int]]:
    """Packs, of at most `room` tokens, of the rows that share a long beginning, and the indices of the other rows and
    of those that are long themselves."""
    packs, alone = [], []
    for members in _group_alike(rows, room):
        if len(members) == 1:
            alone += members
        else:
            packs.append(_make_pack(rows, members))
    return packs, alone


def _group_alike(rows: Sequence[list[int]], room: int) -> Iterator[list[int]]:
    """Groups of rows; in the order of their tokens, neighbours share most. A row joins where its share of the beginning
    is no less than what the others then have to read one by one."""
    members: list[int] = []
    size = shared = 0
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        row = rows[index]
        if members:
            common = len(_find_common_start(rows, [members[0], members[-1], index]))
            again = (shared - common) * (len(members) - 1)
            short = max(len(row), len(rows[members[-1]])) <= LONGEST
            if short and common >= max(SHARED, again) and size + again + len(row) - common <= room:
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
