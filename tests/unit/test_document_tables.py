"""Tables for documents: hostile names are shown as they are, and do nothing."""

from __future__ import annotations

from tbwire.document_tables import latex_lines, markdown_lines

HOSTILE = "a|b\\input{x}&_^~%$#<i>[1]*--\n\x1b[2J`"


def test_markdown_table_escapes_names():
    lines = list(markdown_lines(["lr", HOSTILE], [["0.1", "0.9 ± 0.1 (5)"]]))
    assert lines == [
        r"| lr | a\|b\\input\{x\}\&\_^\~%\$\#\<i\>\[1\]\*-- \[2J\` |",
        "| --- | --- |",
        "| 0.1 | 0.9 ± 0.1 (5) |",
    ]


def test_latex_table_escapes_names():
    lines = list(latex_lines(["lr", "loss"], [[HOSTILE, "-0.9 ± 0.1 (5)"]]))
    assert lines[:2] == [r"\begin{tabular}{ll}", r"\hline"]
    assert lines[4] == (
        r"a\textbar{}b\textbackslash{}input\{x\}\&\_\textasciicircum{}\textasciitilde{}\%\$\#"
        r"\textless{}i\textgreater{}{[}1{]}{*}-{}- {[}2J` & -0.9 $\pm$ 0.1 (5) \\"
    )
    assert lines[5:] == [r"\hline", r"\end{tabular}"]
