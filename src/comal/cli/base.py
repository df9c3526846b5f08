"""Commands that show examples, groups that load their commands when called."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import click

from comal.cli.failures import EXIT_CODES, Flags, PipeClosedError, ending_by_signal, guarded
from comal.cli.options import COMMON

Examples = Sequence[tuple[str, str]]
"""Command lines, each with what it does."""


def _write_examples(formatter: click.HelpFormatter, examples: Examples) -> None:
    if examples:
        with formatter.section("Examples"):
            for line, does in examples:
                formatter.write(f"  # {does}\n  $ {line}\n")


class Command(click.Command):
    """A command with the options that all have, and with examples in its help.

    Parameters
    ----------
    examples
        Pairs of a command line and what it does.
    """

    def __init__(self, *args: Any, examples: Examples = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params += [option() for option in COMMON]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the options."""
        _write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


class Group(click.Group):
    """A group whose commands are modules, imported when one of them is called.

    Parameters
    ----------
    table
        For each command its module, which exports `command`, and one line of help.
    """

    def __init__(
        self,
        *args: Any,
        table: Mapping[str, tuple[str, str]] | None = None,
        examples: Examples = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.table = dict(table or {})
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order of the table."""
        return list(self.table)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in self.table:
            return None
        module, line = self.table[cmd_name]
        command: click.Command = import_module(module).command
        command.short_help = line
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the table; no command is imported for that."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the commands."""
        _write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


class Root(Group):
    """The outermost group: runs a command and ends the process with its exit code."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run the command line `args`, those of the process by default, and exit.

        The overloads of click tell whether it returns; this one never does.
        """
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        flags = Flags.of(words)
        # A server has its own way to end.
        ending = nullcontext() if words[:1] == ["serve"] else ending_by_signal()
        with ending, warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            code = guarded(lambda: super(Root, self).main(words, prog_name, **extra), flags)
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and flush what it printed, so that a closed pipe shows here."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise PipeClosedError from error
        return result

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the exit codes."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def _show_warning(message: Warning | str, *_where: Any, **_more: Any) -> None:
    """Print a warning as ours; where in the code it arose says nothing to a user."""
    click.echo(f"{click.style('comal: warning:', fg='yellow')} {message}", err=True)
