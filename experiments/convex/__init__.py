"""Appendix A: IGD, SubGD and PGD on five classes of convex problems; and what chords and the radial method add."""
