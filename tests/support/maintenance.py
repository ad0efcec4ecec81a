"""Run commands of maintenance and the audit log in this process: a new one takes seconds to import."""

from __future__ import annotations

import argparse

from support.servers import environment_of
from tbservice.cli import run_command
from tbservice.cli_maintenance import add_audit, add_backup, add_check, add_sweep


def command_runner(monkeypatch, capsys, settings=None):
    """Return a function that runs a command with these settings, and returns its exit code, and
    what it printed to stdout and to stderr.
    """
    environment = {} if settings is None else environment_of(settings)
    if settings is not None and settings.backup_database_url is not None:
        url = settings.backup_database_url.get_secret_value()
        environment["TBHUB_BACKUP_DATABASE_URL"] = url
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers()
        add_check(commands)
        add_backup(commands)
        add_sweep(commands)
        add_audit(commands)
        options = parser.parse_args([str(argument) for argument in arguments])
        return run_command(options), *capsys.readouterr()

    return run
