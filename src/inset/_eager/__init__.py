"""Sets in few operations of torch, in place of the many of their formulas, where torch runs one after another.

Each is one autograd function with a derivative written out. The formulas of the sets are the reference, to which these
agree up to rounding and margin, and what runs where these do not apply: for learned fields, in half precision, under
transforms, and for second derivatives. A module has `fused(set, x, anchor, method, strict)`, which is g(x) or None.
"""
