"""Rules of the style guide that no linter checks, for every file."""

from __future__ import annotations

import ast
import re

import pytest

from support.source_code import modules, product

LINES_MAX = 500
FUNCTION_LINES_MAX = 60
DRAWERS = {"utils", "util", "helpers", "common", "manager", "misc"}
MOCKS = {
    "unittest.mock",
    "mock",
    "pytest_mock",
    "moto",
    "responses",
    "respx",
    "vcr",
    "fakeredis",
    "freezegun",
}
OTHER_MACHINES = ("sys.platform", "os.geteuid()", "os.name", "not has_last_release()")

EXCEPTION = re.compile(r"[#] (ruff: )?noqa\b|[#] type: ignore\b")
EXPLAINED = re.compile(
    r"^\s*# (?!noqa|type:|ruff:)\w|(noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\]) +(-|#) \w"
)

PRODUCT = product()
TESTS = modules("tests")


def functions(module):
    return [
        node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def attributes_of(module):
    return [ast.unparse(node) for node in module.nodes if isinstance(node, ast.Attribute)]


def test_no_module_is_too_long():
    assert not [
        (module.name, n)
        for module in PRODUCT
        if (n := len(module.text.splitlines())) > LINES_MAX and module.name != "tbservice.limits"
    ]


def test_no_function_is_too_long():
    assert not [
        (module.name, function.name)
        for module in PRODUCT
        for function in functions(module)
        if function.end_lineno - function.lineno >= FUNCTION_LINES_MAX
    ]


def test_no_module_is_drawer_for_everything():
    assert not [
        module.name
        for module in [*PRODUCT, *TESTS]
        if DRAWERS & set(re.split(r"[._]", module.name))
    ]


def unexplained(lines):
    """Yield the numbers of lines that silence a linter without a reason beside them or in a comment
    above.
    """
    has_reason = False
    for number, line in enumerate(lines, 1):
        is_exception = EXCEPTION.search(line)
        if is_exception and not (has_reason or EXPLAINED.search(line)):
            yield number
        has_reason = bool(EXPLAINED.search(line)) or (bool(is_exception) and has_reason)


def test_every_exception_to_linter_has_reason_beside_it():
    silenced = [
        (module.name, n)
        for module in [*PRODUCT, *TESTS]
        for n in unexplained(module.text.splitlines())
    ]
    assert not silenced


def test_no_test_pretends():
    assert not [
        (module.name, name)
        for module in TESTS
        for name in module.imports
        if name.startswith(tuple(MOCKS))
    ]


def test_no_test_is_skipped_except_on_other_machines():
    attributes = [(module.name, text) for module in TESTS for text in attributes_of(module)]
    skips = {
        use
        for use in attributes
        if re.search(r"pytest\.(mark\.)?(skip|xfail|importorskip)$", use[1])
    }
    assert skips == {
        ("tests.support.programs", "pytest.skip")
    }  # which fails where the variable CI is set
    conditions = [
        (module.name, ast.unparse(node.args[0]))
        for module in TESTS
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.skipif"
    ]
    assert not [use for use in conditions if not use[1].startswith(OTHER_MACHINES)]


def test_names_of_tests_are_sentences():
    assert not [
        (module.name, function.name)
        for module in TESTS
        for function in functions(module)
        if function.name.startswith("test_") and function.name.count("_") < 3
    ]


@pytest.mark.parametrize("package", ["service/tbservice", "uploader/tbupload", "uploader/tbwire"])
def test_every_module_begins_with_sentence(package):
    for module in modules(package):
        first = (ast.get_docstring(module.tree) or "").partition("\n\n")[0]
        assert first.endswith((".", ":")) or not module.tree.body, module.name


def written_past_the_console(module):
    """Yield calls that print without `tbupload.console.terminal`, which escapes control characters."""
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        is_print = name in {"print", "os.write"} or re.search(
            r"(sys\.(stdout|stderr)|_?stream|tqdm)\.write(lines)?$", name
        )
        is_bar = name.endswith((".set_description_str", ".set_description", ".set_postfix_str"))
        texts = node.args[:1] + [
            keyword.value for keyword in node.keywords if keyword.arg == "desc"
        ]
        is_escaped = all(ast.unparse(text).startswith("escape(") for text in texts)
        if (
            (is_print or is_bar or name.endswith("tqdm"))
            and not (texts and is_escaped)
            and not is_empty_bar(node, name)
        ):
            yield module.name, node.lineno


def is_empty_bar(call, name):
    return name.endswith("tqdm") and not [
        keyword for keyword in call.keywords if keyword.arg == "desc"
    ]


def test_uploader_prints_through_its_console_alone():
    uploader = [
        module
        for module in modules("uploader/tbupload")
        # The second one passes on what another program prints, unchanged.
        if module.name not in {"tbupload.console.terminal", "tbupload.commands.running.output_copy"}
    ]
    assert not [call for module in uploader for call in written_past_the_console(module)]
