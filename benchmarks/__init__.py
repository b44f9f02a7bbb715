"""Measurements of `inset`, each run by `python -m benchmarks <name>`. Not part of the wheel; see README.md here."""
