"""Our own HTML: who may see a page, the bar, messages, the token form, downloads."""
