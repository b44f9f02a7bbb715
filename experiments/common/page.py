"""One self-contained HTML page: text, tables and inline figures, light or dark as the reader's system is."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from .claims import Claim, show
from .tables import Table


@dataclass
class Section:
    """The results of one run: figures with captions, tables, and where they come from."""

    title: str
    figures: list[tuple[str, str]] = field(default_factory=list)
    """`<svg>` or `<img>` elements and captions."""
    tables: list[Table] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    """Command, time, versions, machine."""


@dataclass
class Chapter:
    """One experiment."""

    name: str
    summary: str
    sections: list[Section]
    command: str


def page(chapters: list[Chapter], claims: list[tuple[Claim, str]]) -> str:
    """The report; each claim comes with its meaning."""
    links = "".join(f'<a href="#{c.name}">{html.escape(c.name)}</a>' for c in chapters)
    body = "\n".join(_chapter(chapter) for chapter in chapters)
    return PAGE.replace("{links}", links).replace("{claims}", _claims(claims)).replace("{body}", body)


def _claims(claims: list[tuple[Claim, str]]) -> str:
    if not claims:
        return "<p>No results yet.</p>"
    lines = []
    for claim, meaning in claims:
        mark = '<td class="yes">holds</td>' if claim.holds else '<td class="no">does not hold</td>'
        name = f"{html.escape(claim.claim)}<small>{html.escape(meaning)}</small>"
        lines.append(
            f"<tr><td>{html.escape(claim.experiment)}</td><td>{name}</td><td>{show(claim.paper)}</td>"
            f"<td>{show(claim.measured)}</td><td>{claim.scale}</td>{mark}"
            f"<td><code>{html.escape(claim.command)}</code></td></tr>"
        )
    head = "".join(f"<th>{h}</th>" for h in ("experiment", "claim", "paper", "here", "scale", "", "command"))
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _chapter(chapter: Chapter) -> str:
    sections = "\n".join(_section(section) for section in chapter.sections)
    if not sections:
        sections = f"<p>No results yet: <code>{html.escape(chapter.command)}</code></p>"
    return (
        f'<h2 id="{chapter.name}">{html.escape(chapter.name)}</h2>\n<p>{html.escape(chapter.summary)}</p>\n{sections}'
    )


def _section(section: Section) -> str:
    figures = "".join(
        f"<figure>{element}<figcaption>{html.escape(text)}</figcaption></figure>" for element, text in section.figures
    )
    tables = "".join(_table(table) for table in section.tables)
    facts = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in section.facts)
    return f"<h3>{html.escape(section.title)}</h3>\n{figures}{tables}<dl>{facts}</dl>"


def _table(table: Table) -> str:
    def line(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    rows = "".join(line(row, "td") for row in table.rows)
    caption = f"<caption>{html.escape(table.caption)}</caption>"
    return f'<div class="wide"><table>{caption}{line(table.head, "th")}{rows}</table></div>'


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>inset: the experiments</title><style>
:root { color-scheme: light dark; --text: #1b1b1f; --soft: #5c6068; --ground: #ffffff; --line: #d9dce1;
  --good: #1a7f4b; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --text: #e4e5e9; --soft: #a2a6ae; --ground: #16181c; --line: #363a42;
  --good: #5cc98f; --bad: #ff8a80 } }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1.2rem; font: 16px/1.55 system-ui, sans-serif;
  color: var(--text); background: var(--ground) }
p { max-width: 48rem } nav a { margin-right: 1.2rem } a { color: inherit }
h2 { margin-top: 3rem; padding-top: .6rem; border-top: 1px solid var(--line) }
figure { margin: 1.2rem 0 } svg { width: 100%; height: auto } svg text { font-family: system-ui, sans-serif }
img { max-width: 100% }
figcaption, caption, small { color: var(--soft); font-size: .9rem; text-align: left }
figcaption { max-width: 60rem } small { display: block; max-width: 28rem }
.wide { overflow-x: auto } caption { padding-bottom: .3rem }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--line) }
code { font-size: .85em } .yes { color: var(--good) } .no { color: var(--bad); font-weight: 600 }
.yes, .no { white-space: nowrap }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; font-size: .9rem; color: var(--soft) }
dd { margin: 0 }
</style></head><body>
<h1>inset: the experiments</h1>
<p>A point x outside of a convex set {h &le; 0} is pulled towards an anchor x0 inside of it until it is in the set; call
the result g(x). The paper descends on f(g(x)) instead of f (IGD). Here its experiments are repeated with the library
<code>inset</code>, and what the paper says stands next to what was measured: at paper scale, from the results that are
committed with the code, and from the latest quick run on this machine.</p>
<nav>{links}</nav>
<h2 id="claims">Claims</h2>
{claims}
{body}
</body></html>
"""
