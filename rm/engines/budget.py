"""How much a local engine may hold at once."""

import math
from typing import NamedTuple

ROW_TOKENS = {"cpu": 4}
"""What one more row of branches in a pass costs, in tokens of layer work; ``OTHER_ROW_TOKENS`` for other
devices. Measured on the CPU; the other figure is a guess, untested."""
OTHER_ROW_TOKENS = 256


class Budget(NamedTuple):
    """Memory limits of one forward pass; what a call holds grows with these and not with its prompts."""

    batch_tokens: int = 4096
    """Padded tokens of a batch."""
    mask_cells: int = 16_000_000
    """Query-key pairs of a batch: 64 MB of mask in fp32."""
    decode_rows: int = 64
    """Prompts that are written together."""
    cache_bytes: int = 1_000_000_000
    """Keys and values of a batch, of trunks and of prompts that are being written."""
    branch_tokens: int | None = None
    """Tokens of branches in a row; ``None``: what the model's shape and the device make cheapest."""
    packed_bytes: int = 1_000_000_000
    """Copies of a model's linear layers for writing (CPU, fp32); a larger model goes without them."""

    def halved(self) -> "Budget":
        """Half of everything, for another try after the memory ran out."""
        row = None if self.branch_tokens is None else max(1, self.branch_tokens // 2)
        tokens, cells = max(1, self.batch_tokens // 2), max(1, self.mask_cells // 2)
        return self._replace(
            batch_tokens=tokens,
            mask_cells=cells,
            decode_rows=max(1, self.decode_rows // 2),
            cache_bytes=max(1, self.cache_bytes // 2),
            branch_tokens=row,
        )

    def row_tokens(self, balance: float, device: str) -> int:
        """Tokens of branches a row.

        Branches in one row are masked from one another and the masked pairs are computed all the same: S
        branch tokens in rows of G cost about ``S G / balance`` for those pairs and ``(S / G) c`` for the
        calls of every row. Cheapest at ``G = sqrt(c balance)``.

        Args:
            balance: work of the layers on one token over work of attention on one pair.
            device: torch device type.
        """
        if self.branch_tokens is not None:
            return self.branch_tokens
        row = ROW_TOKENS.get(device, OTHER_ROW_TOKENS)
        return max(1, min(math.ceil(math.sqrt(row * balance)), self.batch_tokens))
