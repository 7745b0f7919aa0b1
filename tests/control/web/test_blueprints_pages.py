"""The pages of blueprints, for admins."""

from __future__ import annotations

from pathlib import Path

from blueprint_samples import blueprint, push
from browser_session import signed_in
from control_plane import Server
from mainstay.blueprints.bundle import pack
from scenario import Scenario, unique

EXAMPLES = Path(__file__).parents[3] / "examples" / "blueprints"


def test_an_admin_sees_versions_and_the_files_of_a_bundle(server: Server, scenario: Scenario) -> None:
    source = sorted(each for each in EXAMPLES.iterdir() if (each / "blueprint.yaml").exists())[0]
    pushed = server.admin.call("POST", "/api/v1/blueprints", raw=pack(str(source)), query={"force": "true"}).body
    browser = signed_in(server.url, str(server.admin.token))
    page = browser.get(f"/blueprints?name={pushed['name']}").text
    assert pushed["version"] in page
    assert pushed["serviceType"]["id"] in page
    files = browser.get(f"/blueprints?digest={pushed['digest']}").text
    assert "service-type.yaml" in files
    assert "not signed" in files
    shown = browser.get(f"/service-types/{pushed['serviceType']['id']}").text
    assert "new services get it" in shown
    browser.get("/blueprints?digest=sha256:0", expect=404)
    provider = signed_in(server.url, str(scenario.provider.token))
    provider.get("/blueprints", expect=403)
    provider.get(f"/blueprints?digest={pushed['digest']}", expect=403)


def test_the_filter_by_version_names_a_participant_the_versions_of_its_services(
    server: Server, scenario: Scenario
) -> None:
    source = sorted(each for each in EXAMPLES.iterdir() if (each / "blueprint.yaml").exists())[0]
    pushed = server.admin.call("POST", "/api/v1/blueprints", raw=pack(str(source)), query={"force": "true"}).body
    (version,) = server.admin.get(f"/blueprints?digest={pushed['digest']}")["items"]
    path = f"/services?serviceTypeId={version['serviceTypeId']}"
    assert pushed["digest"] in signed_in(server.url, str(server.admin.token)).get(path).text
    assert pushed["digest"] not in signed_in(server.url, str(scenario.stranger.token)).get(path).text


def test_an_admin_deletes_a_version_that_nothing_uses(server: Server, scenario: Scenario) -> None:
    name = unique("web")
    old, new = (push(server.admin, blueprint(name, version)) for version in ("1.0.0", "1.1.0"))
    browser = signed_in(server.url, str(server.admin.token))
    path = f"/blueprints/{old['digest']}/delete"
    assert path in browser.get(f"/blueprints?digest={old['digest']}").text
    assert "/delete" not in browser.get(f"/blueprints?digest={new['digest']}").text
    browser.post(path, {}, csrf=browser.get(path).csrf)
    server.admin.get(f"/blueprints/{old['digest']}", expect=404)
    signed_in(server.url, str(scenario.provider.token)).get(f"/blueprints/{new['digest']}/delete", expect=403)
