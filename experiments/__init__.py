"""The experiments of the paper, repeated: `python -m experiments --help`.

Each folder is one experiment: `config.py` (the paper's numbers), `run.py` (computes, never draws), `figure.py` (draws,
never computes), `claims.py` and `tables.py` (what the results say), and a README. None knows another; what they share
is in `common`.
"""
