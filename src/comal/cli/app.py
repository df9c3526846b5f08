"""How commands run: help with examples, exit codes, and what a failed one prints and returns."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click

from comal.cli.options import COMMON
from comal.errors import ComalError, without_secrets

EXIT_CODES = {
    0: "done",
    1: "check found problems",
    2: "wrong usage, or an input that cannot be used",
    3: "not found",
    4: "access denied",
    5: "not this format, or a version that is not supported",
    6: "invalid or corrupt content",
    7: "network or storage failure",
    8: "a missing extra",
    9: "unsafe content, or larger than a limit",
    10: "the object changed in the meantime, or the target exists",
    11: "finished, but some items failed",
    70: "a bug in comal",
    130: "interrupted",
    141: "the reader of the output went away",
    143: "ended by SIGTERM or SIGHUP",
}
"""Every exit code. Errors of comal carry theirs as `ComalError.exit_code`; the list only grows."""

PARTLY, BUG, INTERRUPTED, PIPE_CLOSED, TERMINATED = 11, 70, 130, 141, 143
STORAGE = 7


class Terminated(KeyboardInterrupt):
    """A signal ended the process; the cleanup is the same as for Ctrl-C."""


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, unless they are handled already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    both = (signal.SIGTERM, signal.SIGHUP)
    taken = [one for one in both if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, _terminate)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


def _terminate(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleanup
    raise Terminated


class PipeClosedError(Exception):
    """The reader of our output stopped; click would turn the built-in error into exit code 1."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Options that matter even when the rest of the command line cannot be parsed."""

    json: bool = False
    debug: bool = False

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Flags:
        """The flags among `arguments`, up to a ``--``."""
        words = set(arguments[: arguments.index("--")] if "--" in arguments else arguments)
        return cls("--json" in words, "--debug" in words)


def guarded(call: Callable[[], Any], flags: Flags) -> int:
    """Run a command and return its exit code; prints and maps the error it raises."""
    try:
        code = call()
    except PipeClosedError:
        _drop_stdout()
        return PIPE_CLOSED
    except click.Abort as error:
        _say({"error": "Interrupted", "code": "interrupted", "what": "interrupted"}, flags)
        return TERMINATED if isinstance(error.__cause__, Terminated) else INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _usage(error, flags)
    except ComalError as error:
        _trace(flags)
        _say(_document(error), flags, _in_options(str(error)))
        return error.exit_code
    except OSError as error:
        # Storage errors arrive as ComalError: this is standard output, on a full disk for example.
        _trace(flags)
        _say({"error": "StorageError", "code": "storage", "what": f"output: {error}"}, flags)
        return STORAGE
    except Exception as error:  # noqa: BLE001 - anything else is a bug of comal
        return _bug(error, flags)
    return code if isinstance(code, int) else 0


def styled(text: str, **how: Any) -> str:
    """A text in bold or in a colour, unless the user or the terminal asks for plain ones."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return text if is_plain else click.style(text, **how)


def tell(error: ComalError, *, as_json: bool) -> None:
    """Print the error of one of several items; the command goes on with the others."""
    _say(_document(error), Flags(json=as_json), _in_options(str(error)))


_OPTIONS = {
    "overwrite=True": "--overwrite",
    "allow_ids=True": "--allow-ids",
    "rename=True": "--rename",
    "replace=True": "--replace",
    "skip_missing=True": "--skip-missing",
    "validate_schema=False": "--any-schema",
    "stretch=(low, high)": "--stretch LOW,HIGH",
    "layout='interleaved'": "--layout interleaved",
    "names={'": "--rename ",
    "': '...'}": "=...",
    "comal.open recognises": "'comal info' recognises",
    "microseconds since 1970 as int, a datetime, a date or ISO 8601 text": "2025-06-01 or "
    "2025-06-01T10:30:00Z",
}
"""Arguments of functions as messages name them, each with its form on the command line."""


def _in_options(text: str) -> str:
    """The message with arguments of functions in their form on the command line."""
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    return text


def _document(error: ComalError) -> dict[str, Any]:
    """The error as plain data, in the same words as the text."""
    document = error.to_dict()
    for key in ("hint", "expected"):
        if isinstance(document.get(key), str):
            document[key] = _in_options(document[key])
    return document


def _usage(error: click.ClickException, flags: Flags) -> int:
    context = getattr(error, "ctx", None)
    text = error.format_message()
    if context is not None and not flags.json:
        click.echo(context.get_usage(), err=True)
        text += f"\n  mend: see '{context.command_path} --help'"
    _say({"error": "UsageError", "code": "usage", "what": error.format_message()}, flags, text)
    return error.exit_code


def _bug(error: Exception, flags: Flags) -> int:
    _trace(flags)
    what = f"{type(error).__name__}: {error}"
    text = (
        f"this is a bug in comal: {what}\n"
        "  mend: please report it with what the command prints with --debug"
    )
    _say({"error": "Bug", "code": "bug", "what": what}, flags, text)
    return BUG


def _say(document: dict[str, Any], flags: Flags, text: str | None = None) -> None:
    # Errors of the system and of other libraries repeat URLs with their secrets.
    if flags.json:
        click.echo(without_secrets(json.dumps(document)), err=True)
    else:
        prefix = styled("comal:", fg="red", bold=True)
        click.echo(f"{prefix} {without_secrets(text or document['what'])}", err=True)


def _trace(flags: Flags) -> None:
    if flags.debug:
        click.echo(without_secrets(traceback.format_exc().rstrip()), err=True)


def _drop_stdout() -> None:
    """Redirect standard output to nowhere, so that the interpreter's last flush cannot fail."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return  # not a file, as in a test
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class Command(click.Command):
    """A command with the options that all have.

    Examples come last in the docstring of its function: each is a line that begins with ``$``, with
    its explanation after a ``#``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Here, and not with the outermost group alone: click keeps the option of the first help.
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        self.help, self.examples = _told(self.help)
        self.params += [option() for option in COMMON]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the options."""
        del ctx
        _write_examples(formatter, self.examples)


command = partial(click.command, cls=Command)
"""Declares a command outside of the groups."""


def _told(text: str | None) -> tuple[str, list[tuple[str, str]]]:
    """The help of a command, and its examples, each with what it does."""
    help_text, *examples = re.split(r"^\$ ", inspect.cleandoc(text or ""), flags=re.MULTILINE)
    pairs = (" ".join(one.split()).partition(" # ") for one in examples)
    return help_text.rstrip(), [(line, does) for line, _, does in pairs]


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    with formatter.section("Examples"):
        for line, does in examples:
            formatter.write(f"  # {does}\n  $ {line}\n")


class Group(click.Group):
    """A group whose help shows the first sentence of every command, in their order.

    Parameters
    ----------
    removed
        Commands removed since the last release, each with its replacement.
    """

    command_class = Command

    def __init__(self, *args: Any, removed: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        self.help, self.examples = _told(self.help)
        self.removed = dict(removed or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order of their definition."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` begin with; a removed one names its replacement."""
        if args[0] in self.removed:
            text = f"'{ctx.command_path} {args[0]}' is gone: use '{self.removed[args[0]]}'"
            raise click.UsageError(text, ctx)
        return super().resolve_command(ctx, args)

    def lines(self) -> list[tuple[str, str]]:
        """Each command and what it does."""
        first = {name: (one.help or "").split("\n\n")[0] for name, one in self.commands.items()}
        return [(name, " ".join(text.split())) for name, text in first.items()]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write a line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl(self.lines())

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the commands."""
        del ctx
        _write_examples(formatter, self.examples)


class Root(Group):
    """The outermost group: runs a command and ends the process with its exit code.

    Parameters
    ----------
    table
        For each command ``module:attribute``, which is imported when it is called, and a line of
        help. So ``comal --help`` needs no heavy library.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = dict(table)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order of the table."""
        return list(self.table)

    def lines(self) -> list[tuple[str, str]]:
        """Each command and its line of help; imports no command."""
        return [(name, line) for name, (_, line) in self.table.items()]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run the command line `args`, those of the process by default, and exit.

        The overloads of click tell whether it returns; this one never does.
        """
        words = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        flags = Flags.of(words)
        # The server handles signals itself.
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
    """Print a warning as comal's, without its position in the code, which does not help a user."""
    click.echo(f"{styled('comal: warning:', fg='yellow')} {message}", err=True)
