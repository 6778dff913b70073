"""The command line: `legos VERB ...`. Each verb imports only what it needs."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence

from inference.address import KEY_PLACE, has_secret, hide_secrets
from legos_train.errors import Stopped

VERBS = {
    "envs": ("legos_train.cli.envs", "list, show, check or create environments"),
    "train": ("legos_train.cli.train", "train a model by self-play"),
    "eval": ("legos_train.cli.eval", "evaluate policies, without training"),
    "tournament": ("legos_train.cli.tournament", "play every pair of policies in several envs, with ratings"),
    "exploit": ("legos_train.cli.exploit", "bound a policy's exploitability and save a best response"),
    "serve": ("legos_train.cli.serve", "serve a model over HTTP with OpenAI's API"),
    "play": ("legos_train.cli.play", "play against a policy in the terminal"),
    "chat": ("legos_train.cli.chat", "chat with a trained model in the terminal"),
    "view": ("legos_train.cli.view", "browse episodes, in the browser or the terminal"),
    "report": ("legos_train.cli.report", "rewrite the report of a run, or compare runs"),
    "export": ("legos_train.cli.export", "export adapters, rollouts and environments for other tools"),
    "doctor": ("legos_train.cli.doctor", "show what is installed and how it is set up"),
    "completion": ("legos_train.cli.completion", "print a script that completes `legos` in bash, zsh or fish"),
    "bootstrap": ("legos_train.cli.bootstrap", "rebuild a bundled model"),
}
EXTRAS = {
    **dict.fromkeys(("mlx", "mlx_lm", "transformers", "tokenizers", "safetensors", "tomli_w"), "train"),
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client"), "serve"),
    "threadpoolctl": "serve",
    "wandb": "wandb",
    "httpx2": "client",
    "pyarrow": "datasets",
    "huggingface_hub": "train",
}


OPEN_FILES = "not allowed to raise maximum limit"
"""Python's error when mlx-lm, on import, asks for more open files than the hard limit allows."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb and returns its exit code: 0, 1 for a failure explained by a message, 2 for wrong usage, 3 for a
    training run without any update.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _for_people()
    try:
        code = _run(arguments)
        _flush()
        return code
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        from legos_envs.arguments import install

        print(
            f"legos {arguments[0]} needs {error.name}, from the extra {extra!r}: {install(extra)}",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Stopped as stopped:
        return stopped.exit_code
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich makes an exit with 1 of it
            return _reader_left()
        raise
    except Exception as error:
        if not explained(error):
            raise
        print(f"error: {hide_secrets(message(error, arguments[0]))}", file=sys.stderr)
        try:
            _flush()
        except OSError:  # a full disk: Python would complain about the rest at exit
            _drop_output()
        return int(getattr(error, "exit_code", 1))


def _run(arguments: list[str]) -> int:
    if arguments[:1] in (["--version"], ["-V"]):
        from legos_envs import __version__

        print(f"legos {__version__}")
        return 0
    if not arguments or arguments[0] not in VERBS:
        return _usage(arguments)
    for word in arguments:
        if has_secret(word):
            what = f"{hide_secrets(word)} holds a password or a key, which would end up in files and logs"
            print(f"error: {what}: put it into {KEY_PLACE}", file=sys.stderr)
            return 2
    module, _ = VERBS[arguments[0]]
    try:
        code: int = importlib.import_module(module).run(arguments[1:])
    except SystemExit:  # after its --help
        _flush()
        raise
    return code


def _flush() -> None:
    """Writes what was printed now: at exit, a closed pipe could no longer be handled."""
    if sys.stdout is not None:  # as where a program without one calls `main`
        sys.stdout.flush()


def _for_people() -> None:
    """Sets up a process that runs a single command: no source lines in warnings, no links in settings errors."""
    import os
    import warnings

    said: set[str] = set()

    def note(message: Warning | str, *rest: object) -> str:
        """Shows each text only once: several parts of a command may look up the same id."""
        text = f"note: {message}\n" * (str(message) not in said)
        said.add(str(message))
        return text

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, as by `>&-`; a file opened later would take its number
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            setattr(sys, name, open(null, mode))  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # where the encoding lacks a character, only that is lost
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.formatwarning = note  # type: ignore[assignment]
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")


def _reader_left() -> int:
    """Exits quietly if the reader of our output has gone, as in `legos envs show X | head`; shells expect 141."""
    _drop_output()
    return 141


def _drop_output() -> None:
    """Redirects standard output to the null device: Python flushes it once more at exit, and would complain."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explained(error: BaseException) -> bool:
    """Whether the error was raised deliberately, with a message for the user: one of ours, or one about a file."""
    ours = type(error).__module__.partition(".")[0] in ("legos_envs", "legos_train", "inference")
    return ours or isinstance(error, OSError) or OPEN_FILES in str(error)


def message(error: BaseException, verb: str = "train") -> str:
    """The message for an error that occurred while running a verb."""
    if OPEN_FILES in str(error):
        return "mlx-lm needs a limit of 4096 open files; raise the hard limit (ulimit -Hn), or drop your `ulimit -n`"
    if isinstance(error, OSError) and error.errno is not None:
        from legos_train.disk import fsops

        return fsops.explain_os_error(error, "working", of_run=verb == "train")
    return str(error.args[0] if isinstance(error, LookupError) and error.args else error)


def _usage(arguments: Sequence[str]) -> int:
    verb_given = arguments[0] if arguments else None
    help_wanted = verb_given in (None, "-h", "--help")
    lines = ["usage: legos VERB [options]   (run `legos VERB --help` for details)", ""]
    lines += [f"  {verb:10} {what}" for verb, (_, what) in VERBS.items()]
    if not help_wanted:
        import difflib

        near = difflib.get_close_matches(str(verb_given), VERBS, 1)
        lines = [f"legos: unknown verb {verb_given!r}" + (f", did you mean {near[0]!r}?" if near else ""), *lines]
    print("\n".join(lines), file=sys.stdout if help_wanted else sys.stderr)
    return 0 if help_wanted else 2


def launch() -> int:
    """`main` for a rank started by `mlx.launch`: without a verb it trains."""
    _for_people()
    arguments = sys.argv[1:]
    known = arguments[:1] and (arguments[0] in VERBS or arguments[0] in ("-h", "--help", "-V", "--version"))
    return main(arguments if known else ["train", *arguments])


if __name__ == "__main__":
    sys.exit(main())
