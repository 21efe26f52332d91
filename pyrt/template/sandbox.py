"""Jinja for templates that nobody trusts: they can neither run code nor take the machine's memory or time.

Jinja's own sandbox keeps attributes and methods away that lead out of a template. Here a `Meter` runs beside
it, by these rules:

- No value may weigh more than the meter's ``largest``. What could make a heavier one is asked for the size of
  its result before it runs: operators, ``~``, filters, methods, formatting (`sizes`). What is not listed
  there cannot be called.
- Every string and container that is made counts against the meter's ``left``, and so do the constants that
  the body of a loop or macro makes each time.
- Loops, calls, filters, comparisons and look-ups are steps, and steps look at the clock. Since all values are
  bounded, so is what happens between two of them.

The template itself is bounded too, and nothing of it is evaluated while it is compiled. Whatever the meter
objects to is a pyrt TemplateError.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.environment import Template
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.tests import TESTS
from jinja2.utils import Cycler, Joiner, Namespace

from pyrt.errors import TemplateError
from pyrt.template.guards import BODY, CONCAT, NEW, STEP, Guards
from pyrt.template.meter import current
from pyrt.template.sizes import (
    FILTER_SIZES,
    MAX_HASHED,
    METHOD_SIZES,
    LimitedFormatter,
    html_factor,
    materialise,
    operator_size,
    text_size,
)

MAX_TEMPLATE = 1 << 16  # characters; models have templates of a few thousand, seldom above twenty thousand

# Tests that take longer for larger values.
_COMPARING = {
    *(
        "==",
        "eq",
        "equalto",
        "!=",
        "ne",
        ">",
        "gt",
        "greaterthan",
        ">=",
        "ge",
        "<",
        "lt",
        "lessthan",
        "<=",
        "le",
    ),
    *("in", "lower", "upper"),
}


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    args = tuple(map(materialise, args))
    if args and len(args[0]) > MAX_HASHED:
        raise TemplateError(f"the chat template makes a mapping of more than {MAX_HASHED} keys")
    return dict(*args, **kwargs)


class PlainNamespace(Namespace):
    """A namespace without names that begin with an underscore, which mean something to Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that an attribute may be called self
        self, *rest = args
        attributes = _dict(*rest, **kwargs)
        for name in attributes:
            PlainNamespace._check(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        PlainNamespace._check(name)
        Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise TemplateError(f"the chat template sets {name!r} on a namespace")


_CLASSES = (Cycler, Joiner, PlainNamespace)
_OBJECTS = (BlockReference, Cycler, Joiner, LoopContext, Macro)


class GenerationBlock(Extension):
    """``{% generation %}`` marks what the assistant says, for training; here it renders what is inside."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class Environment(ImmutableSandboxedEnvironment):
    """The environment of transformers' chat templates, with a meter."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

    def __init__(self, **functions: Callable[..., Any]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, loopcontrols],
            finalize=_written,
            optimized=False,
            cache_size=0,
        )
        tojson = functions.pop("tojson")
        filters = {**FILTERS, "tojson": tojson}
        self.filters = {name: _metered(name, filters[name]) for name in FILTER_SIZES}
        self.filters |= {BODY: _body, NEW: _new, CONCAT: _concat, STEP: _step}
        self.tests = {name: _stepping(test) if name in _COMPARING else test for name, test in TESTS.items()}
        self._functions = {"range": safe_range, "dict": _dict, **functions}
        self.globals = {**self._functions, "cycler": Cycler, "joiner": Joiner, "namespace": PlainNamespace}

    def template(self, source: str) -> Template:
        """Compile a template; jinja2.TemplateError if it is none, TemplateError if it breaks a limit."""
        if len(source) > MAX_TEMPLATE:
            raise TemplateError(
                f"the chat template has {len(source)} characters; {MAX_TEMPLATE} are the most"
            )
        tree = Guards().visit(self.parse(source))
        return Template.from_code(self, self.compile(tree), self.make_globals(None), None)

    def getattr(self, obj: Any, attribute: str) -> Any:
        current().step()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        current().step()
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        meter = current()
        meter.step()
        meter.fit(operator_size(operator, left, right))
        return meter.made(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format and str.format_map, wherever they are looked up, become functions of our own."""
        bound = isinstance(value, (types.MethodType, types.BuiltinMethodType))
        if not bound or value.__name__ not in ("format", "format_map") or not isinstance(value.__self__, str):
            return None
        text = str(value.__self__)
        return self._format_map(text) if value.__name__ == "format_map" else self._format(text)

    def _format(self, text: str) -> Callable[..., str]:
        return functools.partial(_formatted, self, text)

    def _format_map(self, text: str) -> Callable[..., str]:
        return functools.partial(_formatted_map, self, text)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        meter = current()
        meter.step()
        owner = getattr(__obj, "__self__", None) if isinstance(__obj, _BOUND) else None
        size = _method_size(owner, __obj.__name__) if owner is not None else None
        if size is not None:
            args = tuple(map(materialise, args))
            kwargs = {
                name: value if name in _INTERNAL else materialise(value) for name, value in kwargs.items()
            }
            visible = {name: value for name, value in kwargs.items() if name not in _INTERNAL}
            meter.fit(size(owner, *args, **visible) * html_factor(owner))
        elif not __self._may_call(__obj, owner):
            raise TemplateError(f"the chat template calls {_name(__obj)}, which templates cannot")
        return meter.made(super().call(__context, __obj, *args, **kwargs))

    def _may_call(self, obj: Any, owner: Any) -> bool:
        if isinstance(obj, functools.partial):
            return obj.func in (_formatted, _formatted_map)
        if isinstance(obj, types.MethodType):
            return isinstance(owner, _OBJECTS)
        # Jinja says best that something undefined was called.
        known = obj in _CLASSES or obj in self._functions.values()
        return known or isinstance(obj, (*_OBJECTS, Undefined))


_BOUND = (types.BuiltinMethodType, types.MethodType)
_INTERNAL = ("_loop_vars", "_block_vars")  # what compiled code tells `Context.call`


def _name(obj: Any) -> str:
    return str(getattr(obj, "__name__", type(obj).__name__))


def _method_size(owner: Any, name: str) -> Callable[..., float] | None:
    for kind, sizes in METHOD_SIZES.items():
        if isinstance(owner, kind):
            return sizes.get(name)
    return None


def _formatted(environment: Environment, text: str, *args: Any, **kwargs: Any) -> str:
    return LimitedFormatter(environment).vformat(text, args, kwargs)


def _formatted_map(environment: Environment, text: str, mapping: Any) -> str:
    return LimitedFormatter(environment).vformat(text, (), mapping)


@pass_context
def _written(_: Any, value: Any) -> Any:
    """What ``{{ value }}`` writes."""
    meter = current()
    meter.step()
    if not isinstance(value, str):
        meter.fit(meter.weight(value))
        value = str(value)
    return meter.made(value)


def _body(nbytes: int) -> None:
    """At the start of each turn of a loop, and of each macro: what its constants take."""
    meter = current()
    meter.step()
    meter.spend(nbytes)


def _new(value: Any) -> Any:
    return current().made(value)


def _step(value: Any) -> Any:
    current().step()
    return value


def _concat(values: list[Any]) -> str:
    meter = current()
    meter.step()
    meter.fit(sum(map(text_size, values)))
    return meter.made("".join(map(str, values)))


def _stepping(test: Any) -> Callable[..., Any]:
    @functools.wraps(test)
    def run(*args: Any) -> Any:
        current().step()
        return test(*args)

    return run


def _metered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is asked for the size of its result first."""
    size = FILTER_SIZES[name]
    first = int(hasattr(function, "jinja_pass_arg"))  # the context or the environment goes before the value

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        meter = current()
        meter.step()
        values = tuple(map(materialise, args[first:]))
        meter.fit(size(*values, **kwargs))
        return meter.made(function(*args[:first], *values, **kwargs))

    return run
