"""The contestants: floor, mainstay and installed peers. Each writes the work in its own language."""

from __future__ import annotations

import json
import os
import shutil
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from benchmarks.work import COMMANDS, COPY, FILES, GROUP, OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.work import Work

HERE = os.path.dirname(os.path.abspath(__file__))
NO_BOUND = 10**9


class Contestant(ABC):
    """One way to do the work."""

    name: str
    program: str
    kinds: tuple[str, ...] = (FILES, COMMANDS, COPY)
    # Largest size that does not take minutes; `--patient` lifts it.
    largest = NO_BOUND
    is_slow = False

    def __init__(self, program: str) -> None:
        self.path = program

    def write(self, work: Work) -> str:
        """Writes the manifest into the work's folder and returns its path."""
        path = f"{work.folder}/{self.file_name}"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(self.lines(work))
        os.chmod(path, 0o600)
        return path

    file_name = "manifest.yaml"

    @abstractmethod
    def lines(self, work: Work) -> Iterator[str]:
        """The manifest, in the contestant's language."""

    @abstractmethod
    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        """The command line."""

    def environ(self, work: Work) -> dict[str, str]:
        return {**os.environ, "HOME": work.folder}


class Mainstay(Contestant):
    name = program = "mainstay"

    def lines(self, work: Work) -> Iterator[str]:
        if work.kind == COMMANDS:
            yield "resources:\n  - exec:\n"
            for command, marker in work.commands():
                yield f"      - {command}:\n          command: {command}\n          creates: {marker}\n"
            return
        yield "resources:\n  - file:\n"
        attributes = f"          ensure: present\n          owner: {OWNER}\n          group: {GROUP}\n"
        if work.kind == COPY:
            yield f'      - {work.target}:\n{attributes}          mode: "0644"\n          source: {work.source}\n'
            return
        for path, text in work.files():
            block = "".join(f"            {line}\n" for line in text.splitlines())
            yield f'      - {path}:\n{attributes}          mode: "0644"\n          content: |\n{block}'

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, "apply", manifest]

    def environ(self, work: Work) -> dict[str, str]:
        return {**os.environ, "MAINSTAY_STATE_DIR": f"{work.folder}/state"}


class MainstayJson(Mainstay):
    name = "mainstay-json"
    kinds = (FILES,)
    largest = 10_000

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, "apply", manifest, "--json"]


class MainstayFlow(Mainstay):
    """Reads the same manifest in flow style."""

    name = "mainstay-flow"
    kinds = (FILES,)
    largest = 10_000

    def lines(self, work: Work) -> Iterator[str]:
        yield "resources:\n"
        for path, text in work.files():
            attributes = f"ensure: present, owner: {OWNER}, group: {GROUP}, mode: '0644'"
            yield f"  - file: {{name: {path}, {attributes}, content: {json.dumps(text)}}}\n"


class Floor(Mainstay):
    """Reads mainstay's manifest."""

    name = "floor"

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, f"{HERE}/floor.py", work.kind, action, manifest]


class CFEngine(Contestant):
    name, program, file_name = "cfengine", "cf-agent", "promises.cf"
    largest = 10_000

    def lines(self, work: Work) -> Iterator[str]:
        yield 'body common control\n{\n  bundlesequence => { "main" };\n}\n'
        yield (
            f'body perms attributes\n{{\n  mode => "0644";\n  owners => {{ "{OWNER}" }};\n'
            f'  groups => {{ "{GROUP}" }};\n  rxdirs => "false";\n}}\n'
        )
        yield 'body copy_from local(path)\n{\n  source => "$(path)";\n  compare => "digest";\n}\n'
        yield "bundle agent main\n{\n"
        if work.kind == COMMANDS:
            yield "  commands:\n"
            for command, marker in work.commands():
                yield f'    "{command}" if => not(fileexists("{marker}"));\n'
        else:
            yield "  files:\n"
        if work.kind == COPY:
            yield f'    "{work.target}" copy_from => local("{work.source}"), perms => attributes;\n'
        if work.kind == FILES:
            for path, text in work.files():
                yield f'    "{path}" create => "true", perms => attributes, content => "{text}";\n'
        yield "}\n"

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, "--no-lock", "--file", manifest]


class Puppet(Contestant):
    name, program, file_name = "puppet", "puppet", "manifest.pp"
    largest = 1_000
    is_slow = True

    def lines(self, work: Work) -> Iterator[str]:
        attributes = f"ensure => file, owner => '{OWNER}', group => '{GROUP}', mode => '0644'"
        if work.kind == COMMANDS:
            for command, marker in work.commands():
                yield f"exec {{ '{command}': creates => '{marker}' }}\n"
        elif work.kind == COPY:
            yield f"file {{ '{work.target}': {attributes}, source => '{work.source}' }}\n"
        else:
            for path, text in work.files():
                yield f"file {{ '{path}': {attributes}, content => '{text}' }}\n"

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, "apply", manifest]


class Salt(Contestant):
    name, program, file_name = "salt", "salt-call", "states/work.sls"
    largest = 1_000
    is_slow = True

    def write(self, work: Work) -> str:
        os.makedirs(f"{work.folder}/states")
        with open(f"{work.folder}/minion", "w", encoding="utf-8") as file:
            json.dump(
                {
                    "root_dir": work.folder,
                    "file_client": "local",
                    "file_roots": {"base": [f"{work.folder}/states"]},
                    "id": "benchmark",
                    "log_level": "error",
                },
                file,
            )
        return super().write(work)

    def lines(self, work: Work) -> Iterator[str]:
        attributes = f"    - user: {OWNER}\n    - group: {GROUP}\n    - mode: '0644'\n"
        if work.kind == COMMANDS:
            for command, marker in work.commands():
                yield f"{command}:\n  cmd.run:\n    - creates: {marker}\n"
        elif work.kind == COPY:
            yield f"{work.target}:\n  file.managed:\n{attributes}    - source: {work.source}\n"
        else:
            for path, text in work.files():
                yield f"{path}:\n  file.managed:\n{attributes}    - contents: {json.dumps(text)}\n"

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, "--local", f"--config-dir={work.folder}", "--retcode-passthrough", "state.apply", "work"]


class Ansible(Contestant):
    name, program, file_name = "ansible", "ansible-playbook", "playbook.yml"
    largest = 100
    is_slow = True

    def lines(self, work: Work) -> Iterator[str]:
        yield "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"
        attributes = f"owner: {OWNER}, group: {GROUP}, mode: '0644'"
        if work.kind == COMMANDS:
            yield "    - command: {cmd: '{{ item.command }}', creates: '{{ item.marker }}'}\n      loop:\n"
            for command, marker in work.commands():
                yield f"        - {{command: {command}, marker: {marker}}}\n"
        elif work.kind == COPY:
            yield f"    - copy: {{src: {work.source}, dest: {work.target}, {attributes}}}\n"
        else:
            yield f"    - copy: {{content: '{{{{ item.text }}}}', dest: '{{{{ item.path }}}}', {attributes}}}\n"
            yield "      loop:\n"
            for path, text in work.files():
                yield f"        - {{path: {path}, text: {json.dumps(text)}}}\n"

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        # Names the interpreter, because Ansible's own search starts several processes.
        own = "ansible_python_interpreter={{ ansible_playbook_python }}"
        return [self.path, "--inventory", "localhost,", "--extra-vars", own, manifest]


class Pyinfra(Contestant):
    name, program, file_name = "pyinfra", "pyinfra", "deploy.py"
    largest = 100
    is_slow = True

    def lines(self, work: Work) -> Iterator[str]:
        yield "from io import StringIO\nfrom pyinfra import host\nfrom pyinfra.facts.files import File\n"
        yield "from pyinfra.operations import files, server\n"
        attributes = f"user={OWNER!r}, group={GROUP!r}, mode='644'"
        if work.kind == COMMANDS:
            for command, marker in work.commands():
                yield f"if not host.get_fact(File, path={marker!r}):\n    server.shell(commands=[{command!r}])\n"
        elif work.kind == COPY:
            yield f"files.put(src={work.source!r}, dest={work.target!r}, {attributes})\n"
        else:
            for path, text in work.files():
                yield f"files.put(src=StringIO({text!r}), dest={path!r}, {attributes})\n"

    def command(self, work: Work, manifest: str, action: str) -> list[str]:
        return [self.path, "-y", "@local", manifest]


PEERS: tuple[type[Contestant], ...] = (CFEngine, Salt, Puppet, Pyinfra, Ansible)


def find(folders: Sequence[str], mainstay: str | None, without: Sequence[str]) -> list[Contestant]:
    """The floor, mainstay, and each peer found on PATH or in one of the folders."""
    places = os.pathsep.join((*folders, os.environ.get("PATH", "")))
    own = mainstay or os.path.join(os.path.dirname(sys.executable), "mainstay")
    found: list[Contestant] = [Floor(sys.executable), Mainstay(own), MainstayJson(own), MainstayFlow(own)]
    for peer in PEERS:
        path = shutil.which(peer.program, path=places)
        if path is not None and peer.name not in without:
            found.append(peer(path))
    return found
