"""Arithmetic over bands: ``(b2-b1)/(b2+b1)``.

The text is parsed by Python's own parser and then walked: numbers, bands, operators and a few
functions are known, anything else is refused. Nothing of it is ever evaluated as Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown

Floats = npt.NDArray[np.float64]
Step = Callable[[Mapping[int, Any]], Any]

_LONGEST = 500
_MOST_NODES = 200
_MOST_BLOCKS = 4
_BAND = re.compile(r"[bB]([1-9]\d{0,3})")

_BINARY: Mapping[type[ast.operator], Any] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.Mod: np.mod,
    ast.FloorDiv: np.floor_divide,
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
}
_UNARY: Mapping[type[ast.unaryop], Any] = {
    ast.USub: np.negative,
    ast.UAdd: np.positive,
    ast.Invert: np.logical_not,
    ast.Not: np.logical_not,
}
_COMPARE: Mapping[type[ast.cmpop], Any] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_OF_ONE = (
    *("sqrt", "abs", "exp", "log", "log10", "log1p"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan"),
)
_FUNCTIONS: Mapping[str, tuple[Any, int]] = {
    **{name: (getattr(np, name), 1) for name in _OF_ONE},
    "arctan2": (np.arctan2, 2),
    "floor": (np.floor, 1),
    "ceil": (np.ceil, 1),
    "min": (np.minimum, 2),
    "max": (np.maximum, 2),
    "where": (np.where, 3),
}
"""What each is called, does, and how many values it takes."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One or more formulas, separated by semicolons, each a band of the result."""

    texts: tuple[str, ...]
    bands: tuple[int, ...]
    """Bands that occur, ascending, counted from 1."""
    steps: tuple[Step, ...]

    def values(self, bands: Mapping[int, npt.NDArray[Any]]) -> Floats:
        """The formulas over bands of one shape (rows, columns); shape (formulas, rows, columns).

        What has no value, such as a division by zero, is NaN or infinite.
        """
        some = next(iter(bands.values()))
        wide = {number: band.astype(np.float64) for number, band in bands.items()}
        with np.errstate(all="ignore"):
            found = [np.broadcast_to(step(wide), some.shape) for step in self.steps]
        return np.stack(found).astype(np.float64)


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Expression:
    """The expression that a text means.

    Raises
    ------
    InvalidInputError
        It cannot be understood, or uses something that is not known.
    """
    if len(text) > _LONGEST:
        raise InvalidInputError(
            "the expression is too long", expected=f"at most {_LONGEST} characters"
        )
    texts = tuple(part.strip() for part in text.split(";") if part.strip())
    if not 1 <= len(texts) <= _MOST_BLOCKS:
        raise InvalidInputError("an expression has one to four formulas, separated by ';'")
    bands: set[int] = set()
    steps = tuple(_step(_tree(one), bands) for one in texts)
    if not bands:
        raise InvalidInputError("the expression uses no band", found=shown(text))
    return Expression(texts, tuple(sorted(bands)), steps)


def evaluated(pixels: Any, formula: Expression | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Values of bands, or of formulas over them, and which of these have one.

    Parameters
    ----------
    pixels
        Masked array of the bands, in the order of `Expression.bands` where there is a formula.
    formula
        Has a value where all of these bands have one, and its result is finite.
    """
    data, valid = np.ma.getdata(pixels), ~np.ma.getmaskarray(pixels)
    if formula is not None:
        data = formula.values(dict(zip(formula.bands, data, strict=True)))
        valid = valid.all(axis=0) & np.isfinite(data)
    return data, valid


def _tree(text: str) -> ast.expr:
    try:
        tree = ast.parse(text, mode="eval")
        count = sum(1 for _ in ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInputError("the expression cannot be understood", found=shown(text)) from error
    if count > _MOST_NODES:
        raise InvalidInputError("the expression is too long", expected=f"{_MOST_NODES} parts")
    return tree.body


def _step(node: ast.expr, bands: set[int]) -> Step:
    """The function that computes a node; bands that occur are added to `bands`."""
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return _constant(node.value)
        case ast.Name(id=name):
            return _band(name, bands)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _call(_UNARY[type(op)], [_step(operand, bands)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _call(_BINARY[type(op)], [_step(left, bands), _step(right, bands)])
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _call(_COMPARE[type(op)], [_step(left, bands), _step(right, bands)])
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _function(name, args, bands)
    raise InvalidInputError(
        "the expression uses something that is not known",
        found=shown(ast.unparse(node)),
        expected="numbers, bands (b1, b2, ...), + - * / ** % // & | ~, comparisons, "
        + ", ".join(_FUNCTIONS),
    )


def _constant(value: object) -> Step:
    try:
        number = np.float64(value)  # type: ignore[arg-type] # the caller has looked at its type
    except OverflowError as error:
        raise InvalidInputError("a number of the expression is too large") from error
    return lambda _: number


def _band(name: str, bands: set[int]) -> Step:
    match = _BAND.fullmatch(name)
    if match is None:
        raise InvalidInputError(
            "the expression names no band", found=shown(name), expected="b1, b2, ..."
        )
    number = int(match[1])
    bands.add(number)
    return lambda values: values[number]


def _function(name: str, args: list[ast.expr], bands: set[int]) -> Step:
    function, count = _FUNCTIONS[name]
    if len(args) != count:
        raise InvalidInputError(f"{name} takes {count} values", found=len(args))
    return _call(function, [_step(arg, bands) for arg in args])


def _call(function: Any, steps: list[Step]) -> Step:
    return lambda values: function(*(step(values) for step in steps))
