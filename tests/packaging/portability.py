"""Checks sources against the interpreter that runs this file: what they import, use and pass exists there.

Run by tests with other interpreters, so it uses the standard library only: `python portability.py FILE…`.
Prints one line for each offence."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
from typing import Any

THIRD_PARTIES = {"yaml", "jinja2", "markupsafe"}
# Of functions without a signature that Python can show.
LATE_KEYWORDS = {("zip", "strict"): (3, 10)}


class Checker(ast.NodeVisitor):
    def __init__(self, path: str) -> None:
        self.path = path
        self.names: dict[str, Any] = {}
        self.offences: list[str] = []

    def report(self, node: ast.stmt | ast.expr, text: str) -> None:
        self.offences.append(f"{self.path}:{node.lineno}: {text}")

    def visit_If(self, node: ast.If) -> None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        is_for_newer = "sys.version_info" in ast.unparse(node.test)
        for child in node.orelse if is_for_types or is_for_newer else ast.iter_child_nodes(node):
            self.visit(child)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if "sys.version_info" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self._load(node, alias.name) is not None:
                self.names[alias.asname or alias.name.partition(".")[0]] = sys.modules[
                    alias.name if alias.asname else alias.name.partition(".")[0]
                ]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = self._load(node, node.module or "")
        for alias in node.names if module is not None else ():
            if not hasattr(module, alias.name):
                self.report(node, f"{node.module} has no {alias.name}")
            else:
                self.names[alias.asname or alias.name] = getattr(module, alias.name)

    def _load(self, node: ast.stmt, name: str) -> Any:
        top = name.partition(".")[0]
        if top == "mainstay" or top in THIRD_PARTIES:
            return None
        try:
            return importlib.import_module(name)
        except ImportError as error:
            # A module that only some Pythons have is imported by name (`import_module`).
            self.report(node, f"cannot import {name}: {error}")
            return None

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations are not evaluated."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for child in (*node.decorator_list, node.args, *node.body):
            self.visit(child)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._resolve(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = self._resolve(node.func)
        for keyword in node.keywords if function is not None else ():
            if keyword.arg is not None and not self._accepts(function, keyword.arg):
                self.report(node, f"{ast.unparse(node.func)} has no parameter {keyword.arg}")
        self.generic_visit(node)

    def _accepts(self, function: Any, keyword: str) -> bool:
        if sys.version_info < LATE_KEYWORDS.get((getattr(function, "__name__", ""), keyword), (0,)):
            return False
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return True
        return keyword in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def _resolve(self, node: ast.expr) -> Any:
        """The value of a name or a dotted name that this file imports; None if it is not known."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, getattr(builtins, node.id, None))
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._resolve(node.value)
        if not inspect.ismodule(owner) and not inspect.isclass(owner):
            return None
        if not hasattr(owner, node.attr):
            self.report(node, f"there is no {ast.unparse(node)}")
            return None
        return getattr(owner, node.attr)


def main() -> None:
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        try:
            tree = ast.parse(source, path)
        except SyntaxError as error:
            print(f"{path}:{error.lineno}: {error.msg}")
            continue
        checker = Checker(path)
        checker.visit(tree)
        print(*checker.offences, sep="\n", end="\n" if checker.offences else "")


if __name__ == "__main__":
    main()
