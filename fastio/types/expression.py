"""
Expressions over columns, as users write them: ``width >= 400 and label in ('dog', 'cat')``.

The text is parsed by Python's ``ast`` and computed by ``pyarrow.compute``, node by node; nothing else is ever run.
Missing values are neither true nor false, as in SQL, and samples of which a whole expression says neither are left out.

    expression  and, or, not                      of comparisons and columns of booleans
    comparison  == != < <= > >=                   also in a row: 400 <= width < 800
                in (...), not in (...)            a tuple or list of values
                is None, is not None
    value       a number, a text, True, False, a column, or column('any name')
                + - * /                           of numbers
                x.startswith('a'), x.endswith('a'), x.contains('a')

A number beside a column of float32 or float16 is rounded to that first: 0.7 is equal to a stored 0.7.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError

__all__ = ["ColumnValues", "Expression"]

_COMPARISONS: Final = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_ARITHMETIC: Final = {
    ast.Add: "add_checked",
    ast.Sub: "subtract_checked",
    ast.Mult: "multiply_checked",
    ast.Div: "divide",
}
_METHODS: Final = {"startswith": "starts_with", "endswith": "ends_with", "contains": "match_substring"}
_KNOWN = "expected columns, numbers, texts, comparisons, in, is None, and, or, not, + - * / and .startswith()"


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """
    The values of a column: numbers, booleans or texts, ``(n,)``, as an array of NumPy or a list with None for missing
    ones. ``names`` are those of classes, whose numbers the values are. ``texts`` are the values as they are written in
    a file that has only text.
    """

    values: NDArray[Any] | Sequence[Any]
    names: Sequence[str] | None = None
    texts: Sequence[str | None] | None = None


@dataclass(frozen=True, slots=True)
class _Value:
    """
    What a part of an expression gives: an array or a scalar of pyarrow. ``short`` is the dtype of a column of floats of
    less than 64 bits.
    """

    data: Any
    names: Sequence[str] | None = None
    texts: Any = None
    short: np.dtype[Any] | None = None


class Expression:
    """
    A parsed expression. Raises SchemaError, with the place, for what is none; ``where`` is what it belongs to, for
    messages.

    >>> Expression("400 <= width and label in ('dog', 'cat')", where="a.lmdb").columns
    ('width', 'label')
    """

    def __init__(self, text: str, *, where: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"{where}: expected an expression as text, such as 'width >= 400', got {text!r}")
        self.text = " ".join(text.splitlines()).strip()
        self._where = where
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            offset = (getattr(exc, "offset", None) or 1) - 1
            problem = "is no expression"
            if self.text[offset : offset + 1] == "=" or "==" in str(exc):
                problem = "for equality, write =="
            raise SchemaError(self._words(problem, offset)) from None
        self.columns = tuple(dict.fromkeys(self._names(self._tree)))

    def mask(self, count: int, values_of: Callable[[str], ColumnValues], known: Sequence[str]) -> NDArray[np.bool_]:
        """
        Return for which of ``count`` samples it is true, ``(count,)``.

        ``values_of`` returns a column of those that are ``known``. Raises SchemaError, with the place, for an unknown
        column and for values that cannot be compared, and if pyarrow is not installed.
        """
        evaluation = _Evaluation(self, values_of, known, _pyarrow(self._where), _pyarrow(self._where, ".compute"))
        result = evaluation.truth(self._tree)
        filled = evaluation.compute.fill_null(result, False)
        if isinstance(filled, evaluation.arrow.Scalar):
            return np.full(count, filled.as_py())
        mask: NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
        return mask

    def error(self, node: ast.AST, problem: str) -> SchemaError:
        """Return the error of a part of the expression."""
        offset = getattr(node, "col_offset", 0)  # in bytes
        return SchemaError(self._words(problem, len(self.text.encode()[:offset].decode())))

    def _words(self, problem: str, offset: int) -> str:
        return f"{self._where}: {self.text!r}, at {self.text[offset:][:40]!r} (character {offset + 1}): {problem}"

    def _names(self, node: ast.AST) -> list[str]:
        name = _column(node)
        if name is not None:
            return [name]
        return [name for child in ast.iter_child_nodes(node) for name in self._names(child)]


def _column(node: ast.AST) -> str | None:
    """Return the column that a node names, if it is one."""
    if isinstance(node, ast.Name):
        return node.id
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "column"):
        return None
    name = node.args[0] if len(node.args) == 1 and not node.keywords else None
    return str(name.value) if isinstance(name, ast.Constant) else None


def _pyarrow(where: str, module: str = "") -> Any:
    try:
        return import_module(f"pyarrow{module}")
    except ModuleNotFoundError as exc:
        raise SchemaError(f"{where}: expressions need the package pyarrow: pip install 'fastio[text]'") from exc


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Computes the parts of an expression, each once."""

    expression: Expression
    values_of: Callable[[str], ColumnValues]
    known: Sequence[str]
    arrow: Any
    compute: Any

    def truth(self, node: ast.AST) -> Any:
        """Return the booleans of a part that must be true or false."""
        if isinstance(node, ast.BoolOp):
            join = self.compute.and_kleene if isinstance(node.op, ast.And) else self.compute.or_kleene
            first, *others = map(self.truth, node.values)
            for other in others:
                first = join(first, other)
            return first
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.compute.invert(self.truth(node.operand))
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [self._compared(*each) for each in zip(node.ops, sides[:-1], sides[1:], strict=True)]
            first, *others = parts
            for other in others:
                first = self.compute.and_kleene(first, other)
            return first
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        value = self._value(node).data
        if self._kind(value) == "missing":
            return self._nothing(value)
        if not self.arrow.types.is_boolean(value.type):
            raise self.expression.error(node, f"is {self._kind(value)}, where a comparison is expected")
        return value

    def _compared(self, operator: ast.cmpop, left: ast.AST, right: ast.AST) -> Any:
        """Return the booleans of one comparison."""
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self.expression.error(right, "expected None after is")
            data = self._value(left).data
            missing = self.compute.is_null(data)
            return missing if isinstance(operator, ast.Is) else self.compute.invert(missing)
        if isinstance(operator, (ast.In, ast.NotIn)):
            found = self._among(left, right)
            return found if isinstance(operator, ast.In) else self.compute.invert(found)
        return self._pair(_COMPARISONS[type(operator)], left, right)

    def _pair(self, name: str, left: ast.AST, right: ast.AST) -> Any:
        one, two = self._value(left), self._value(right)
        one, two = self._alike(one, two, right), self._alike(two, one, left)
        one, two = self._as_stored(one, two), self._as_stored(two, one)
        kinds = self._kind(one.data), self._kind(two.data)
        if "missing" in kinds:  # a column without any value, of which no comparison is true
            return self._nothing(one.data, two.data)
        if kinds[0] != kinds[1]:
            raise self.expression.error(left, f"cannot compare {kinds[0]} with {kinds[1]}")
        return self._computed(name, left, one.data, two.data)

    def _nothing(self, *sides: Any) -> Any:
        """Return booleans that are all missing, as many as the sides are long."""
        column = next(side for side in sides if not isinstance(side, self.arrow.Scalar))
        return self.arrow.nulls(len(column), self.arrow.bool_())

    def _alike(self, value: _Value, other: _Value, node: ast.AST) -> _Value:
        """Return a value as it is compared with another one: classes and numbers by their text, if that is text."""
        if self._kind(other.data) != "a text" or other.names is not None or self._kind(value.data) == "a text":
            return value
        if value.names is not None:
            if isinstance(other.data, self.arrow.Scalar) and other.data.as_py() not in value.names:
                near = get_close_matches(other.data.as_py(), value.names, n=1)
                advice = f": did you mean {near[0]!r}?" if near else ""
                raise self.expression.error(node, f"no class has this name{advice}")
            return _Value(self._class_names(value))
        return value if value.texts is None else _Value(value.texts)

    def _as_stored(self, value: _Value, other: _Value) -> _Value:
        """Return a number as the column that it is compared with would store it, if that can."""
        if other.short is None or not isinstance(value.data, self.arrow.Scalar) or self._kind(value.data) != "a number":
            return value
        with np.errstate(over="ignore"):
            stored = float(other.short.type(value.data.as_py()))
        return _Value(self.arrow.scalar(stored)) if np.isfinite(stored) else value

    def _class_names(self, value: _Value) -> Any:
        """Return the names of classes in the place of their numbers; numbers without a name are missing."""
        assert value.names is not None
        data = self.compute.cast(value.data, self.arrow.int64())
        inside = self.compute.and_(
            self.compute.greater_equal(data, 0), self.compute.less(data, self.arrow.scalar(len(value.names)))
        )
        places = self.compute.if_else(inside, data, self.arrow.scalar(None, self.arrow.int64()))
        return self.compute.take(self.arrow.array(list(value.names), self.arrow.string()), places)

    def _among(self, left: ast.AST, right: ast.AST) -> Any:
        """Return where a value is one of several."""
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not right.elts:
            raise self.expression.error(right, "expected values in brackets after in, such as ('dog', 'cat')")
        found = None
        for element in right.elts:
            equal = self._pair("equal", left, element)
            found = equal if found is None else self.compute.or_kleene(found, equal)
        return found

    def _method(self, node: ast.Call, called: ast.Attribute) -> Any:
        """Return the booleans of ``text.startswith("a")`` and its like."""
        argument = node.args[0] if len(node.args) == 1 and not node.keywords else None
        if called.attr not in _METHODS or not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise self.expression.error(node, f"expected .{', .'.join(_METHODS)} of one text, such as .startswith('a')")
        value = self._value(called.value)
        if value.names is not None:
            value = _Value(self._class_names(value))
        data = value.texts if value.texts is not None else value.data
        if self._kind(data) != "a text":
            raise self.expression.error(called.value, f"is {self._kind(data)}, but .{called.attr}() is for text")
        return getattr(self.compute, _METHODS[called.attr])(data, argument.value)

    def _value(self, node: ast.AST) -> _Value:
        """Return the value of a part: a constant, a column, or what is computed of them."""
        name = _column(node)
        if name is not None:
            return self._column(name, node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
            try:
                return _Value(self.arrow.scalar(node.value))
            except (OverflowError, self.arrow.ArrowInvalid):
                raise self.expression.error(node, "is too large: numbers are 64 bits") from None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _Value(self._computed("negate_checked", node, self._number(node.operand)))
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            sides = [self._number(node.left), self._number(node.right)]
            if isinstance(node.op, ast.Div):
                sides = [self.compute.cast(side, self.arrow.float64(), safe=False) for side in sides]
            return _Value(self._computed(_ARITHMETIC[type(node.op)], node, *sides))
        is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        if is_not or isinstance(node, (ast.BoolOp, ast.Compare)):
            return _Value(self.truth(node))
        raise self.expression.error(node, f"is not known here: {_KNOWN}")

    def _computed(self, name: str, node: ast.AST, *sides: Any) -> Any:
        try:
            return getattr(self.compute, name)(*sides)
        except (self.arrow.ArrowInvalid, self.arrow.ArrowNotImplementedError) as exc:
            raise self.expression.error(node, f"cannot be computed: {exc}") from None

    def _number(self, node: ast.AST) -> Any:
        data = self._value(node).data
        if self._kind(data) == "missing":
            data = self.compute.cast(data, self.arrow.int64())
        if self._kind(data) != "a number":
            raise self.expression.error(node, f"is {self._kind(data)}, where a number is expected")
        return data

    def _column(self, name: str, node: ast.AST) -> _Value:
        if name not in self.known:
            near = get_close_matches(name, self.known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.known)}"
            raise self.expression.error(node, f"no column {name!r}: {advice}")
        column = self.values_of(name)
        texts = None if column.texts is None else self.arrow.array(column.texts, self.arrow.string())
        values, short = column.values, None
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.dtype != np.uint64:
            wide = np.float64 if values.dtype.kind == "f" else np.int64
            short = values.dtype if values.dtype.kind == "f" and values.dtype != wide else None
            values = values.astype(wide, copy=False)  # so that small numbers can be added and multiplied
        return _Value(self.arrow.array(values, from_pandas=True), column.names, texts, short)  # NaN is a missing value

    def _kind(self, data: Any) -> str:
        types = self.arrow.types
        if types.is_boolean(data.type):
            return "true or false"
        if types.is_string(data.type) or types.is_large_string(data.type):
            return "a text"
        return "missing" if types.is_null(data.type) else "a number"
