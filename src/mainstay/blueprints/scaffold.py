"""The files that `mainstay blueprint new` creates: a small, complete and valid blueprint."""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "blueprint.yaml": """\
# Name and version of the blueprint, and the manifest of each action of the lifecycle in service-type.yaml.
name: NAME
version: 0.1.0
actions:
  create: {manifest: manifests/present.yaml, timeout: 1m}
  # `upgrades`: an update also brings a service to the newest version of this blueprint.
  update: {manifest: manifests/present.yaml, upgrades: true}
  delete: {manifest: manifests/absent.yaml}
# The manifest that describes the host in a state. The agent checks it for drift.
keeps:
  Running: manifests/present.yaml
drift: report # or repair
""",
    "service-type.yaml": """\
# What consumers can order, and its lifecycle.
propertySchema:
  greeting:
    type: string
    # Required with a default: an order can omit it, and no update can clear it.
    required: true
    default: hello
  key:
    type: string
    required: true
    secret: {type: persistent}
  path:
    type: string
    authorizers:
      - {type: actor, config: {actors: [agent]}}

lifecycleSchema:
  states: [{name: New}, {name: Running}, {name: Failed}, {name: Deleted}]
  actions:
    - name: create
      transitions:
        - {from: New, to: Running}
        - {from: New, to: Failed, onError: true}
    - name: update
      requestSchemaType: properties
      transitions:
        - {from: Running, to: Running}
    - name: delete
      transitions:
        - {from: New, to: Deleted}
        - {from: Running, to: Deleted}
        - {from: Failed, to: Deleted}
  initialState: New
  terminalStates: [Deleted]
  runningStates: [Running]
""",
    "manifests/present.yaml": """\
# The host with the service. `service.root` is empty on a host and a scratch directory in tests.
data:
  home: "{{ lookup('service.root') or '/srv' }}/NAME-{{ lookup('service.id') }}"

resources:
  - file:
      - defaults: {owner: "{{ lookup('facts.user.name') }}", group: "{{ lookup('facts.user.group') }}", mode: "0600"}
      - "{{ lookup('data.home') }}":
          ensure: directory
          mode: "0700"
      - "{{ lookup('data.home') }}/greeting":
          ensure: present
          content: "{{ template('../files/greeting.j2') }}"
      # A secret goes into a file of its own that only its owner can read.
      - "{{ lookup('data.home') }}/key":
          ensure: present
          content: "{{ lookup('properties.key') }}"

# Values that the agent reports back to the service.
outputs:
  properties: {path: "{{ lookup('data.home') }}"}
""",
    "manifests/absent.yaml": """\
# The host after the service is deleted.
resources:
  - file:
      - "{{ lookup('service.root') or '/srv' }}/NAME-{{ lookup('service.id') }}":
          ensure: absent
          force: true
""",
    "files/greeting.j2": "{{ lookup('properties.greeting') | line }} from {{ lookup('service.name') }}\n",
    "orders/small.yaml": """\
# An example order for `mainstay blueprint test`, and the change of its update.
properties:
  key: not-a-real-key
change:
  greeting: good day
""",
}


def files_of(name: str) -> dict[str, str]:
    """Path → content of the files of a new blueprint."""
    return {path: content.replace("NAME", name) for path, content in FILES.items()}
