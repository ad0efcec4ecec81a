"""Which workspaces the rules of an OpenID provider open, and which settings are refused."""

import pytest
from pydantic import ValidationError

from tbservice.auth.oidc.memberships import plan_memberships
from tbservice.settings import MembershipRule, OidcProvider

BY_DOMAIN = MembershipRule(workspace=1, role="viewer", email_domain="Example.org")
BY_GROUP = MembershipRule(workspace=1, role="editor", claim="groups", value="ml")
OTHER = MembershipRule(workspace=2, role="owner", claim="department", value="physics")

PROVIDER = {"id": "x", "name": "X", "issuer": "https://id.example.org", "client_id": "tbhub"}


def plan(rules, claims):
    return {int(id_): str(role) for id_, role in plan_memberships(rules, claims).items()}


def test_rule_by_domain_needs_a_verified_address():
    email = {"email": "Alice@EXAMPLE.org"}
    assert plan([BY_DOMAIN], {**email, "email_verified": True}) == {1: "viewer"}
    assert plan([BY_DOMAIN], email) == {}
    assert plan([BY_DOMAIN], {**email, "email_verified": "true"}) == {}


@pytest.mark.parametrize(
    "email",
    [
        "a@example.org.evil.example",
        "a@notexample.org",
        "example.org",
        "@example.org",
        "",
        None,
        ["a@example.org"],
    ],
)
def test_rule_by_domain_wants_the_complete_domain(email):
    assert plan([BY_DOMAIN], {"email": email, "email_verified": True}) == {}


def test_rule_by_claim_takes_a_value_or_a_list():
    assert plan([BY_GROUP, OTHER], {"groups": ["a", "ml"], "department": "physics"}) == {
        1: "editor",
        2: "owner",
    }
    assert plan([BY_GROUP], {"groups": "ml"}) == {1: "editor"}
    for content in ("xml", ["xml"], {"ml": 1}, None, 7):
        assert plan([BY_GROUP], {"groups": content}) == {}


@pytest.mark.parametrize("rules", [[BY_DOMAIN, BY_GROUP], [BY_GROUP, BY_DOMAIN]])
def test_highest_role_of_several_rules_counts(rules):
    claims = {"email": "a@example.org", "email_verified": True, "groups": ["ml"]}
    assert plan(rules, claims) == {1: "editor"}


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"claim": "groups"},
        {"value": "ml"},
        {"email_domain": "example.org", "claim": "groups", "value": "ml"},
        {"email_domain": ""},
    ],
)
def test_rule_without_one_condition_is_refused(condition):
    with pytest.raises(ValidationError):
        MembershipRule(workspace=1, **condition)


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "http://id.example.org"},
        {"issuer": "id.example.org"},
        {"issuer": "http://127.0.0.1.evil.example"},
        {"id": "../x"},
        {"id": ""},
        {"scopes": ["email"]},
        {"secret": "x"},
    ],
)
def test_provider_with_unsafe_settings_is_refused(change):
    assert OidcProvider(**PROVIDER).issuer == "https://id.example.org"
    with pytest.raises(ValidationError):
        OidcProvider(**{**PROVIDER, **change})


def test_provider_never_shows_its_secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hidden\n")
    for more in ({"client_secret": "hidden"}, {"client_secret_file": file}):
        provider = OidcProvider(**PROVIDER, **more)
        assert provider.read_client_secret() == "hidden"
        assert "hidden" not in repr(provider)
