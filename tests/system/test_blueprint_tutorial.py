"""The tutorial for authors of blueprints, run as it is written, on a host with a real systemd."""

from __future__ import annotations

import re

import pytest

from system.conftest import PROGRAM, boot, need_systemd
from test_docs import BLOCK, ROOT, commands, pattern

pytestmark = pytest.mark.test_all
PAGE = ROOT / "docs" / "guide" / "offering" / "tutorial.md"


def test_the_commands_of_the_tutorial_print_the_documented_output() -> None:
    need_systemd()
    prepare = f"export PATH={PROGRAM.parent}:$PATH; mkdir -p /srv/tutorial; cd /srv/tutorial; "
    ran = 0
    with boot("tutorial") as host:
        for language, block in BLOCK.findall(PAGE.read_text()):
            if named := re.match(r"# file: (\S+)\n", block):
                host.write(f"/srv/tutorial/{named[1]}", block[named.end() :])
            for command, expected in commands(block) if language == "shell" else ():
                done = host.run("bash", "-c", prepare + command)
                output = (done.stdout + done.stderr).rstrip("\n")
                assert pattern(expected).fullmatch(output), f"$ {command}\n{output}\n--- expected ---\n{expected}"
                ran += 1
    assert ran > 20
