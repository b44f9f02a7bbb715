"""A configuration as command-line options.

A configuration is a frozen dataclass whose defaults are the paper's numbers, with a class method `quick()`: one option
per field, with the field's docstring as help. Fields with `compare=False` do not change results.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import shlex
import textwrap
from typing import Any, get_args, get_origin, get_type_hints


def add_options(parser: argparse.ArgumentParser, cls: type[Any]) -> None:
    """`--field VALUE` for each field; a field that is a tuple takes several values."""
    hints, texts = get_type_hints(cls), field_docstrings(cls)
    for field in dataclasses.fields(cls):
        hint, several = hints[field.name], get_origin(hints[field.name]) is tuple
        default = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=get_args(hint)[0] if several else hint,
            nargs="+" if several else None,
            default=argparse.SUPPRESS,
            metavar="X",
            help=f"{texts.get(field.name, '')} (default: {default})".replace("%", "%%"),
        )


def read_options(arguments: argparse.Namespace, cls: type[Any], quick: bool) -> Any:
    """The configuration: the paper's or the quick one, with the fields that were given replaced."""
    base: Any = cls.quick() if quick else cls()
    given = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(cls) if hasattr(arguments, f.name)}
    return dataclasses.replace(base, **{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})


def as_json(config: Any) -> dict[str, Any]:
    """The fields that results depend on (those that are compared), as JSON gives them back."""
    fields = [f.name for f in dataclasses.fields(config) if f.compare]
    return json.loads(json.dumps({name: getattr(config, name) for name in fields}))


def scale(config: Any) -> str:
    """ "paper" or "quick" for those configurations, "custom" for any other."""
    if config == type(config)():
        return "paper"
    return "quick" if config == type(config).quick() else "custom"


def command(name: str, config: Any) -> str:
    """The command line that repeats a run with this configuration."""
    words = ["python", "-m", "experiments", name, "run"]
    if scale(config) == "quick":
        return shlex.join([*words, "--quick"])
    default = type(config)()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.compare and value != getattr(default, field.name):
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    return shlex.join(words)


def field_docstrings(cls: type) -> dict[str, str]:
    """The string below each field, which Python itself does not keep."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = words.strip()
    return found
