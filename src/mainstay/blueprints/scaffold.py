"""The blueprint that `mainstay blueprint new` begins with: small, complete, and right as it is."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "blueprint.yaml": """\
# What this blueprint is, and which manifest serves which action of the lifecycle in service-type.yaml.
name: NAME
version: 0.1.0
actions:
  create: {manifest: manifests/present.yaml, timeout: 1m}
  # `moves`: an update also brings a service to the newest version of this blueprint.
  update: {manifest: manifests/present.yaml, moves: true}
  delete: {manifest: manifests/absent.yaml}
# Which manifest describes the host while a service is in a state: by it the agent looks for drift.
keeps:
  Running: manifests/present.yaml
drift: report # or repair
""",
    "service-type.yaml": """\
# What can be ordered, and the life of what was.
propertySchema:
  greeting:
    type: string
    # Required beside a default: it can be left out of an order, and no update can clear it.
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

# What the host found out flows back into the service.
outputs:
  properties: {path: "{{ lookup('data.home') }}"}
""",
    "manifests/absent.yaml": """\
# The host without the service: as it was before.
resources:
  - file:
      - "{{ lookup('service.root') or '/srv' }}/NAME-{{ lookup('service.id') }}":
          ensure: absent
          force: true
""",
    "files/greeting.j2": "{{ lookup('properties.greeting') }} from {{ lookup('service.name') }}\n",
    "orders/small.yaml": """\
# An order that `mainstay blueprint test` tries out, and what an update then changes.
properties:
  key: not-a-real-key
change:
  greeting: good day
""",
}


def files_of(name: str) -> dict[str, str]:
    """Path → content."""
    return {path: content.replace("NAME", name) for path, content in FILES.items()}
