"""Sets in one pass over a batch, for programs that `torch.compile` makes for a CPU.

A compiler fuses what is written for each sample, but allocates an array for each sum over an axis, and for each number
that the backward pass needs: for small batches that costs more than the arithmetic. So these have few sums, and a
derivative written out. The formulas of the sets are the reference, to which these agree up to rounding and margin, and
what runs where these do not apply.
"""
