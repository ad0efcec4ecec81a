"""The tables of experiments, their words, links and upload records."""
