"""The people whom the setting `sign_up` lets make an account: at a provider, and by an invitation."""

import pytest

from tbservice.types.sign_up import SignUp

OWN, OTHER = "ann@example.org", "ann@example.org.evil.example"


@pytest.mark.parametrize(
    ("setting", "accounts", "invited"),
    [
        ("open", [True, True, True], [True, True, True]),
        ("Example.org, example.net", [True, False, False], [True, False, False]),
        ("invitation", [False, False, False], [True, True, True]),
        ("closed", [False, False, False], [False, False, False]),
    ],
)
def test_sign_up_admits(setting, accounts, invited):
    sign_up = SignUp.parse(setting)
    keys = (OWN, OTHER, None)
    assert [sign_up.admits_account(key) for key in keys] == accounts
    assert [sign_up.admits_invited(key) for key in keys] == invited


@pytest.mark.parametrize(
    "setting", ["", "domains", "Closed", "@example.org", "a.example,", "a b.c"]
)
def test_sign_up_refuses_other_settings(setting):
    with pytest.raises(ValueError, match="with commas"):
        SignUp.parse(setting)
