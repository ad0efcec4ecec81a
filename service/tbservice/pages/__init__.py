"""The service's own HTML: access checks, the bar, message pages, the token form, downloads."""
