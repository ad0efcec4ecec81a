"""Replacements for parts of TensorBoard's plugins: HParams, projector, Markdown, regexps."""
