"""The two errors that `inset` raises itself; both are `ValueError`s."""


class AnchorError(ValueError):
    """The anchor is not strictly inside the set, or no strictly feasible point exists."""


class PointShapeError(ValueError):
    """A point, an anchor or a field of a set has a shape that does not fit."""
