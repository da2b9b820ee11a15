"""``collector``: pull results from the nodes, merge them, make tables and a report, say what is missing."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from collector.errors import CollectorError, NoResultsError
from collector.formats import plural
from collector.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.fetch import NodePull
    from collector.merge import Merged

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_PARTIAL = 3  # the rest was done
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors are one sentence on stderr."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code: int = arguments.run(arguments, Layout(arguments.results.resolve()))
        sys.stdout.flush()
    except CollectorError as exc:
        _say_error(str(exc))
        return EXIT_ERROR
    except KeyboardInterrupt:
        _say_error("interrupted; what was written is whole, and running again does the rest")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough; keep Python from complaining at its end.
        sys.stderr.close()
        return EXIT_OK
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="collector", description=__doc__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: object, help_text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_text, description=help_text)
        added.add_argument(
            "--results", type=Path, default=Path("results"), metavar="DIR", help="results folder (results)"
        )
        added.set_defaults(run=run)
        return added

    pull = command("pull", _pull, "fetch what is new from the nodes into results/raw")
    pull.add_argument(
        "-i",
        "--inventory",
        action="append",
        default=[],
        metavar="SOURCE",
        help="inventory, as for ansible-playbook; may be repeated",
    )
    pull.add_argument("-l", "--limit", default="", metavar="PATTERN", help="only these nodes")
    pull.add_argument(
        "--from", dest="source", type=Path, metavar="DIR", help="take from a folder instead of the nodes"
    )
    command("merge", _merge, "judge every file and write results/merged")
    tables = command("tables", _tables, "write results/tables and show them")
    tables.add_argument("-q", "--quiet", action="store_true", help="only write the files")
    command("report", _report, "write results/report.html")
    status = command("status", _status, "say what is planned, what is there, and why the rest is not")
    status.add_argument("--format", choices=["text", "json", "markdown"], default="text")
    return parser


def _pull(arguments: argparse.Namespace, layout: Layout) -> int:
    with layout.locked():
        if arguments.source is not None:
            from collector.copies import copy_from  # noqa: PLC0415 - each command loads what it needs

            nodes = copy_from(arguments.source, layout, on_progress=_say_node)
        else:
            from collector.fetch import pull  # noqa: PLC0415 - as above

            nodes = pull(
                layout, inventories=arguments.inventory, limit=arguments.limit, on_progress=_say_node
            )
    for node in nodes:
        _say_findings(node)
    incomplete = [node.node for node in nodes if not node.complete]
    if incomplete:
        complete = f"{len(nodes) - len(incomplete)} of {plural(len(nodes), 'node')}"
        _say(f"incomplete: {', '.join(incomplete)}; complete: {complete}")
    return EXIT_PARTIAL if incomplete else EXIT_OK


def _merge(_arguments: argparse.Namespace, layout: Layout) -> int:
    from collector.environments import differences  # noqa: PLC0415 - each command loads what it needs
    from collector.publish import write_merged, write_quarantine  # noqa: PLC0415 - as above
    from collector.request_table import write_requests  # noqa: PLC0415 - as above

    with layout.locked():
        merged = _read(layout)
        written = write_merged(layout, merged)
        requests, count, problems = write_requests(layout, merged)
        aside = write_quarantine(layout, merged)
    for file in (*merged.refused, *(row.judged for row in merged.current)):
        if file.reason:
            _say(f"{layout.relative(file.path)}: {file.verdict}: {file.reason}")
    for problem in problems:
        _say(problem)
    for campaign in merged.campaigns:
        for problem in campaign.problems:
            _say(f"{campaign.title}: {problem}")
    good = sum(row.cell.status == "ok" for row in merged.current)
    _say(
        f"{plural(len(merged.rows) + len(merged.refused), 'cell file')}: {plural(good, 'ok cell')}, "
        f"{plural(len(merged.current) - good, 'other')} with a reason, "
        f"{len(merged.rows) - len(merged.current)} superseded, "
        f"{len(merged.refused)} refused ({len(aside)} in quarantine)"
    )
    for difference in differences(merged.environments):
        values = ", ".join(f"{name}: {value}" for name, value in difference.values.items())
        _say(f"environments differ in {difference.field} ({values}) and are kept apart")
    names = ", ".join(path.name for path in written)
    _say(f"{names} and {requests.name} ({plural(count, 'request')}) are in {layout.merged}")
    return EXIT_OK


def _tables(arguments: argparse.Namespace, layout: Layout) -> int:
    from collector.headline import headline_chapter  # noqa: PLC0415 - each command loads what it needs
    from collector.publish import write_tables  # noqa: PLC0415 - as above
    from collector.sections import sections  # noqa: PLC0415 - as above
    from collector.tables import Points, chapters  # noqa: PLC0415 - as above

    with layout.locked():
        merged = _read(layout)
        drawn = [Points(section) for section in sections(merged)]
        content = [(points.section, [headline_chapter(points), *chapters(points)]) for points in drawn]
        written = write_tables(layout, merged, content)
    if not arguments.quiet:
        from rich.console import Console  # noqa: PLC0415 - as above

        from collector.terminal import show  # noqa: PLC0415 - as above

        # Into a file or a pipe there is no width to keep to.
        show(Console(highlight=False, width=None if sys.stdout.isatty() else 160), content)
    _say(f"{len(written)} files in {layout.tables}")
    return EXIT_OK


def _report(_arguments: argparse.Namespace, layout: Layout) -> int:
    from collector.report import write_report  # noqa: PLC0415 - each command loads what it needs

    with layout.locked():
        path = write_report(layout, _read(layout))
    _say(f"report: {path}")
    return EXIT_OK


def _status(arguments: argparse.Namespace, layout: Layout) -> int:
    from collector import coverage_text  # noqa: PLC0415 - each command loads what it needs
    from collector.coverage import cover  # noqa: PLC0415 - as above

    merged = _read(layout)
    coverages = [cover(merged, campaign) for campaign in merged.campaigns]
    write = {
        "text": coverage_text.as_text,
        "json": coverage_text.as_json,
        "markdown": coverage_text.as_markdown,
    }[arguments.format]
    sys.stdout.write(write(coverages))
    return EXIT_OK


def _read(layout: Layout) -> Merged:
    from collector.campaigns import scan  # noqa: PLC0415 - each command loads what it needs
    from collector.merge import merge  # noqa: PLC0415 - as above

    campaigns = scan(layout)
    if not campaigns:
        raise NoResultsError(f"{layout.raw}: no results there; run `collector pull` first")
    return merge(campaigns)


def _say_findings(node: NodePull) -> None:
    for intake in node.intakes:
        for note in intake.notes:
            _say_node(node.node, f"{intake.campaign}: {note}")
        for conflict in intake.conflicts:
            _say_node(node.node, f"{intake.campaign}: conflict: {conflict}")


def _say_node(node: str, text: str) -> None:
    _say(f"{node}: {text}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the command line is what prints


def _say_error(line: str) -> None:
    print(f"collector: {line}", file=sys.stderr, flush=True)  # noqa: T201 - as above


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
