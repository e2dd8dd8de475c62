"""The lines of the log: their two forms, levels by module, and the request they belong to."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from extender import journal
from extender.telemetry import set_up_logging

log = logging.getLogger("extender.specimen")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leaves the loggers as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in ("extender.specimen", "extender", "uvicorn", "aiohttp"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_of_json_has_the_fields_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json")
    log.warning("bind failed", extra={"pod": "default/p", "phases": {"read": 0.5}})
    found = json.loads(lines(capsys)[0])
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "extender.specimen",
        "message": "bind failed",
        "pod": "default/p",
        "phases": {"read": 0.5},
    }


def test_a_line_of_text_quotes_what_could_be_misread(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "text")
    fields = {"pod": "default/p", "error": 'no "node"\nfits', "empty": "", "equal": "a=b", "n": 3, "list": ["a", 1]}
    log.info("told", extra=fields)
    (line,) = lines(capsys)
    assert line.partition(" ")[2] == (
        'INFO extender.specimen: told pod=default/p error="no \\"node\\"\\nfits" empty="" equal="a=b" n=3 list=["a",1]'
    )


def test_levels_hold_for_a_package_and_all_within_it(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("warning", "text", {"extender": "debug", "extender.specimen.quiet": "error"})
    log.debug("told")
    logging.getLogger("extender.specimen.quiet").warning("not told")
    logging.getLogger("elsewhere").info("not told")
    logging.getLogger("extender.specimen.quiet").setLevel(logging.NOTSET)
    assert [line.rpartition(" ")[2] for line in lines(capsys)] == ["told"]


async def test_what_is_logged_while_a_request_is_worked_on_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json")
    log.info("before")
    journal.open_entry("filter", "abc-1")
    log.info("within")
    before, within = (json.loads(line) for line in lines(capsys))
    assert "request" not in before
    assert within["request"] == "abc-1"
