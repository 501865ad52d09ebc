# SPDX-License-Identifier: MIT
"""Completions of three shells know the commands and options that there are."""

import re
import subprocess

import pytest
from cell import BIN, ROOT

FOLDER = ROOT / "examples/packaging/completions"
FILES = {"bash": "cellgate", "zsh": "_cellgate", "fish": "cellgate.fish"}


def said(*arguments):
    return subprocess.run([BIN / "cellgate", *arguments], capture_output=True, text=True, timeout=20).stdout


COMMANDS = re.findall(r"^  ([a-z]+) +\S", said("--help"), re.M)


def test_there_are_commands():
    assert len(COMMANDS) >= 12 and {"token", "status", "wait"} <= set(COMMANDS)


@pytest.mark.parametrize("shell", FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_are_known(shell, command):
    text = (FOLDER / FILES[shell]).read_text()
    assert re.search(rf"\b{command}\b", text)
    for option in set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", said(command, "--help"))) - {"help"}:
        assert re.search(rf"(--|-l |for option in .*){option}\b", text), f"{shell}: {command} --{option}"


@pytest.mark.parametrize("shell", FILES)
def test_the_words_of_need_are_those_that_there_are(shell):
    words = re.search(r"--need WORDS +of ([a-z, ]+), with commas", said("token", "--help"))[1].split(", ")
    assert len(words) == 6 and " ".join(words) in (FOLDER / FILES[shell]).read_text()


@pytest.mark.parametrize("typed,wanted", [(["cellgate", "st"], ["status"]), (["cellgate", "status", "--j"], ["--json"]), (["cellgate", "token", "--need", "p"], ["pty"])])
def test_bash_completes(typed, wanted):
    script = f'source {FOLDER}/cellgate; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cellgate; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script, "-", *typed], capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == wanted, done.stderr
