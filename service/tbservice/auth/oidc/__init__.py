"""Sign people in at OpenID Connect providers: authorization code flow with PKCE (RFC 7636).

Built on Authlib: the authorization request, the exchange of the code and the checks of ID tokens.
"""
