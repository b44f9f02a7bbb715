"""The numbers of the comparison on five classes of convex problems (Appendix A)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Config:
    """The defaults are the paper's numbers; "our choice" marks what the paper leaves open."""

    classes: tuple[str, ...] = ("Lin", "SDP", "SOC", "Norm", "Exp", "LinB")
    """Classes of problems; the last one is ours."""
    instances: int = 100
    """Random instances per class; every method and step size sees the same ones."""
    iterations: int = 10_000
    """Iterations of IGD, SubGD and PGD."""
    steps: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)
    """Step sizes beta, one row of the figure each."""
    lin_dimension: int = 10
    """Dimension of Lin (and of LinB)."""
    sdp_dimension: int = 10
    """Dimension of SDP: the number of matrices A_i."""
    soc_dimension: int = 20
    """Dimension of SOC."""
    norm_dimension: int = 100
    """Dimension of Norm."""
    exp_dimension: int = 2
    """Dimension of Exp."""
    lin_constraints: int = 10
    """M of Lin. Our choice."""
    sdp_size: int = 10
    """Rows of the matrices of SDP. Our choice."""
    sdp_depth: float = 1e-3
    """SDP instances whose largest lambda_min near the optimum is below this are drawn again. Our choice."""
    sdp_objective: float = 1.0
    """Factor on the objective c of SDP, whose size the paper does not give. Our choice."""
    soc_constraints: int = 10
    """M of SOC. Our choice."""
    soc_rows: int = 10
    """Rows of each A_i of SOC. Our choice."""
    linb_constraints: int = 40
    """Half-spaces of LinB, a bounded linear program that the paper does not have."""
    radial_iterations: int = 1_000
    """Iterations of the radial method. Our choice: the paper does not have it."""
    seed: int = 0
    """Of the instances; nothing else is random."""
    workers: int = field(default=2, compare=False)
    """Processes, with one thread each. The results do not depend on it."""

    @classmethod
    def quick(cls) -> Config:
        """The same comparison in under a minute: 12 instances, a tenth of the iterations."""
        return cls(instances=12, iterations=1_000)
