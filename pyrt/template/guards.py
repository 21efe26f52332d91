"""Changes to a parsed template, so that what Jinja compiles to plain Python goes by the meter too."""

# ruff: noqa: N802, N815 (a visitor's methods carry the names of the nodes)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from pyrt.errors import TemplateError

# Filters that are put around expressions; no template can spell their names.
BODY, NEW, CONCAT, STEP = "body of a loop", "new value", "~", "step"


class Guards(NodeTransformer):
    """Puts filters of ours around what Jinja compiles to plain Python."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _guard(CONCAT, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _guard(STEP, node.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _guard(NEW, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _literal(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _literal(node, node.items) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _literal(node, [part for pair in node.items for part in (pair.key, pair.value)])

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._repeated(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._repeated(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._repeated(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:
        return self._repeated(node)

    def _repeated(self, node: Any) -> Any:
        self.generic_visit(node)
        cost = 64
        for part in node.find_all((nodes.TemplateData, nodes.List, nodes.Tuple, nodes.Dict)):
            cost += len(part.data) if isinstance(part, nodes.TemplateData) else 64 + 16 * len(part.items)
        line = node.lineno
        node.body.insert(0, nodes.ExprStmt(_guard(BODY, nodes.Const(cost, lineno=line)), lineno=line))
        return node

    def _refused(self, node: nodes.Node) -> nodes.Node:
        what = type(node).__name__.lower()
        raise TemplateError(f"the chat template, line {node.lineno}: {what} is not supported")

    visit_Include = visit_Import = visit_FromImport = visit_Extends = visit_ScopedEvalContextModifier = (
        _refused
    )


def _guard(name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _literal(node: Any, parts: Sequence[nodes.Node]) -> nodes.Node:
    """Lists of constants are counted with the body they stand in."""
    return node if all(isinstance(part, nodes.Const) for part in parts) else _guard(NEW, node)
