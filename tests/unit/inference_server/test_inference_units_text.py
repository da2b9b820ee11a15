"""What reaches a program through a unit file is what was meant, whatever characters are in it."""

import shutil
import subprocess

import pytest
from ansible.module_utils.inference_server.units import command_line, quote, quote_environment


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("--threads", "--threads"),
        ("/dev/shm/a.gguf", "/dev/shm/a.gguf"),
        ("a b", '"a b"'),
        ("50%", '"50%%"'),
        ("$HOME", '"$$HOME"'),
        ('{"a":1}', '"{\\"a\\":1}"'),
        ("back\\slash", '"back\\\\slash"'),
        ("", '""'),
    ],
)
def test_words_are_quoted_only_where_systemd_would_read_more_into_them(word, quoted):
    assert quote(word) == quoted


def test_a_dollar_is_plain_in_an_environment():
    assert quote_environment({"B": "x$y", "A": "1"}) == ["A=1", '"B=x$y"']


def test_each_flag_has_a_line_of_its_own():
    assert command_line(["/p", "-m", "x", "--a", "1", "--b"]) == "/p -m x \\\n  --a 1 \\\n  --b"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd's own parser")
def test_systemd_accepts_the_rendered_line(tmp_path):
    unit = tmp_path / "x.service"
    unit.write_text(f"[Service]\nExecStart={command_line(['/bin/true', '--x', 'a %b $c', '--y', '{}'])}\n")

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    assert "x.service" not in done.stderr
