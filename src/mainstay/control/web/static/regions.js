// Live regions: an element with data-region is fetched again when an event of its data-topics arrives.
// data-entity (ids of rows, also of the service of a job) and data-agent (an id) restrict the events, data-poll (seconds,
// on the region or inside) fetches without events. Regions that are due at about the same time are one request.
// data-rows marks a list, which does not move under the pointer; its rows have data-row or a link.

const EVERY = 5000;
const TOGETHER = 1000;
const HEADERS = { "X-Mainstay-Live": "1" };
const states = new Map();
let timer = 0;
let paused = false;
let stopped = false;
let signedOut = () => {};

export function onSignedOut(act) {
  signedOut = act;
}

export function fetchLive(url, options = {}) {
  return fetch(url, { ...options, headers: { ...HEADERS, ...options.headers }, redirect: "manual", cache: "no-store" });
}

export function changed({ type, entity, agent, service }) {
  const topic = type.split(".")[0];
  for (const region of regions()) {
    const { topics = "", entity: rows, agent: host } = region.dataset;
    const fits = !(rows || host) || (host && host === agent) || rows?.split(" ").some((id) => id === entity || id === service);
    if (fits && topics.split(" ").includes(topic)) ask(region);
  }
}

export function refreshAll() {
  for (const region of regions()) ask(region);
}

// Without a connection nothing is fetched; what was due is fetched once it is back.
export function pause(value) {
  paused = value;
  if (!paused) askDue();
}

export function stop() {
  stopped = true;
}

function regions() {
  return document.querySelectorAll("[data-region]");
}

function stateOf(region) {
  const name = region.dataset.region;
  if (!states.has(name)) states.set(name, { last: 0 });
  return states.get(name);
}

function askDue() {
  for (const region of regions()) if (stateOf(region).due) ask(region);
}

function ask(region) {
  const state = stateOf(region);
  if (stopped || state.at) return;
  state.due = paused || document.hidden;
  if (state.due) return;
  state.at = Math.max(Date.now() + 100, state.last + EVERY) + Math.random() * 500;
  schedule();
}

function schedule() {
  clearTimeout(timer);
  const times = [...states.values()].filter((state) => state.at).map((state) => state.at);
  if (times.length) timer = setTimeout(refresh, Math.min(...times) - Date.now());
}

async function refresh() {
  const now = Date.now();
  const isDue = ({ at, last }) => at && at <= now + TOGETHER && last + EVERY <= now;
  const due = [...regions()].filter((region) => isDue(stateOf(region)));
  for (const region of due) Object.assign(stateOf(region), { at: 0, last: now, due: true });
  for (const [name, { at }] of states) if (at && at <= now) states.delete(name);
  schedule();
  if (stopped || paused || document.hidden || !due.length) return;
  const url = new URL(location.href);
  url.searchParams.set("fragment", due.map((region) => region.dataset.region).join());
  url.hash = "";
  try {
    const response = await fetchLive(url);
    if (response.status === 401) return signedOut();
    for (const region of due) stateOf(region).due = false;
    if (response.ok) showAll(due, await response.text());
    else if (response.status >= 429) due.forEach(ask);
  } catch {
    // Without a connection: due until it is back.
  }
  due.forEach(poll);
}

function showAll(due, text) {
  if (due.length === 1) return show(due[0], text);
  const parts = document.createElement("template");
  parts.innerHTML = text;
  [...parts.content.children].forEach((part, number) => show(due[number], part.innerHTML));
}

function poll(region) {
  const state = stateOf(region);
  const seconds = region.dataset.poll ?? region.querySelector("[data-poll]")?.dataset.poll;
  clearTimeout(state.poll);
  if (seconds) state.poll = setTimeout(ask, Math.max(5, Number(seconds) || 5) * 1000, region);
}

function show(region, html) {
  const focused = document.activeElement;
  const ends = [...region.querySelectorAll(".log")].filter(isAtEnd);
  const fresh = parse(region, html);
  if (region.dataset.rows !== undefined && isInUse(region) && movesRows(region, fresh)) showInPlace(region, fresh, html);
  else replace(region, fresh);
  for (const log of ends) log.scrollTop = log.scrollHeight;
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  region.dispatchEvent(new CustomEvent("mainstay:shown", { bubbles: true }));
}

function parse(region, html) {
  const fresh = region.cloneNode(false);
  fresh.innerHTML = html;
  return fresh;
}

function isAtEnd(log) {
  return log.scrollHeight - log.scrollTop - log.clientHeight < 24;
}

function replace(region, fresh) {
  stateOf(region).waiting?.remove();
  morphChildren(region, fresh);
}

// Lists

function rows(region) {
  return new Map([...region.querySelectorAll(region.dataset.rows || "tbody > tr")].map((row) => [keyOf(row), row]));
}

function isInUse(region) {
  const isPicked = region.querySelector("td input:checked, li input:checked");
  const { top } = region.getBoundingClientRect();
  return region.matches(":hover") || region.contains(document.activeElement) || isPicked || top < 0;
}

function movesRows(region, fresh) {
  return [...rows(region).keys()].join("\n") !== [...rows(fresh).keys()].join("\n");
}

function showInPlace(region, fresh, html) {
  const before = rows(region);
  const after = rows(fresh);
  for (const [key, row] of after) if (before.has(key)) morph(before.get(key), row);
  const count = [...after.keys()].filter((key) => !before.has(key)).length;
  const state = stateOf(region);
  state.waiting?.remove();
  state.waiting = document.createElement("div");
  state.waiting.className = "fresh";
  state.waiting.setAttribute("role", "status");
  state.waiting.innerHTML = '<button type="button" class="btn s"></button>';
  const button = state.waiting.firstChild;
  button.textContent = count ? `Show ${count} new` : "Update the list";
  button.addEventListener("click", () => {
    replace(region, parse(region, html));
    region.tabIndex = -1;
    region.focus({ preventScroll: true });
    region.scrollIntoView({ block: "nearest" });
  });
  region.before(state.waiting);
}

// Changes the old nodes into the new ones. Nodes that stay keep focus, selection, scroll position and typed text.

function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  // Not `node.id`: of a form, that is its field "id".
  const link = node.matches("tr, li") && node.querySelector("a[href]");
  return node.getAttribute("data-row") || node.getAttribute("id") || (link && link.getAttribute("href")) || "";
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  const isKept = (name) => name === "open" && old.localName === "details";
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isKept(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (old.getAttribute(name) !== value && !isKept(name)) old.setAttribute(name, value);
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const match = findMatch(at, next);
    if (!match) old.insertBefore(next, at);
    else {
      if (match === at) at = at.nextSibling;
      else old.insertBefore(match, at);
      morph(match, next);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function findMatch(at, next) {
  const key = keyOf(next);
  const fits = (node) => node.nodeName === next.nodeName && keyOf(node) === key;
  if (!key) return at && fits(at) ? at : null;
  for (let node = at; node; node = node.nextSibling) if (fits(node)) return node;
  return null;
}

document.addEventListener("visibilitychange", () => document.hidden || askDue());
for (const region of regions()) poll(region);
