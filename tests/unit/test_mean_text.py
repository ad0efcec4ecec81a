"""Mean and deviation as a text, with the digits that the deviation allows."""

from __future__ import annotations

import pytest

from tbwire.mean_text import format_mean, format_short


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.9123, 0.0042, 5), "0.912 ± 0.004 (5)"),
        ((0.9123, 0.0014, 5), "0.9123 ± 0.0014 (5)"),
        ((0.9123, 0.0096, 5), "0.9123 ± 0.0096 (5)"),
        ((1234.5, 89.0, 3), "1230 ± 90 (3)"),
        ((-0.001, 0.2, 3), "0.0 ± 0.2 (3)"),
        ((1.5, None, 1), "1.5 (1)"),
        ((1.5, 0.0, 2), "1.5 ± 0 (2)"),
        ((0.0, 0.0, 2), "0 ± 0 (2)"),
        ((123456789.0, 4567.0, 4), "(1.23457 ± 0.00005)e+08 (4)"),
        ((1e-7, 3e-9, 4), "(1.00 ± 0.03)e-07 (4)"),
        ((5e-320, 1e-321, 2), "4.99994e-320 ± 1e-321 (2)"),
        ((1e308, float("inf"), 2), "1e+308 (2)"),
        ((None, None, 0), ""),
    ],
)
def test_mean_has_digits_of_its_deviation(values, text):
    assert format_mean(*values) == text


def test_short_number_keeps_all_digits_of_an_integer():
    numbers = (12345678.0, 1e6, -3.0, 1234567.5, 0.1234567, 2.0**60, float("inf"), float("nan"))
    assert [format_short(each) for each in numbers] == [
        *("12345678", "1000000", "-3", "1.23457e+06", "0.123457", "1.15292e+18", "inf", "nan"),
    ]
