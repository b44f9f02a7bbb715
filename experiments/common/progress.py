"""Progress on stderr: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time


class Progress:
    """`done` of `total` cells, with the name of the last one."""

    def __init__(self, title: str, total: int, done: int = 0, unit: str = "cells", every: float = 10.0) -> None:
        self.title, self.total, self.done, self.every = title, total, done, every
        self.start = self.said = time.monotonic()
        if done:
            say(f"{title}: going on with {done} of {total} {unit} already there")

    def advance(self, what: str) -> None:
        self.done += 1
        now = time.monotonic()
        if sys.stderr.isatty():
            filled = round(30 * self.done / self.total)
            bar = "#" * filled + "." * (30 - filled)
            end = "\n" if self.done == self.total else ""
            line = f"{self.title} [{bar}] {self.done}/{self.total} {now - self.start:.0f} s  {what:<24}"
            print(f"\r{line}", end=end, file=sys.stderr, flush=True)
        elif self.done == self.total or now - self.said > self.every:
            self.said = now
            say(f"{self.title}: {self.done}/{self.total} after {now - self.start:.0f} s, last {what}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
