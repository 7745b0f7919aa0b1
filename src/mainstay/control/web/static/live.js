// The live stream. The tabs of a session share one: the tab that holds the lock reads it and passes messages on, the
// others receive them. Every tab knows the number of the last event, so that a new reader goes on where the old ended.

import { changed, fetchLive, onSignedOut, pause, refreshAll, stop } from "./regions.js";

const RECENT = 200;
const SILENT = 40000;
const NOTE_AFTER = 10000;
const { liveAfter, liveSession } = document.body.dataset;
const name = `mainstay-live-${liveSession}`;
const channel = navigator.locks && window.BroadcastChannel ? new BroadcastChannel(name) : null;

let last = Number(liveAfter);
// Whether all events up to `last` are known: messages before the answer to `hello` could leave a gap.
let joined = false;
let leads = false;
let over = false;
let leaving = false;
let abort = null;
let wake = () => {};
// Of the tab that reads the stream: the events after `floor`, and since when there is no connection.
let recent = [];
let floor = last;
let lostSince = null;

function broadcast(message) {
  channel?.postMessage(message);
  take(message);
}

function take(message) {
  if (over) return;
  const { kind, id } = message;
  if (kind === "hello" && leads) channel.postMessage(lostSince ? { kind: "lost", since: lostSince } : liveMessage());
  if (kind === "ended") end();
  if (kind === "lost") showLost(message.since);
  if (kind === "live") join(message);
  if (!joined) return;
  if (kind === "change" && id > last) changed(message.change);
  if (kind === "reset") {
    last = 0;
    refreshAll();
  } else if (id > last) last = id;
}

function liveMessage(refresh = false) {
  return { kind: "live", refresh, floor, recent, id: last };
}

function join(message) {
  showLive();
  joined = true;
  if (message.refresh || message.floor > last) return refreshAll();
  for (const { id, change } of message.recent) if (id > last) changed(change);
}

// The reader

async function lead() {
  leads = joined = true;
  floor = last;
  recent = [];
  let wait = 1000;
  while (!over && !leaving) {
    try {
      await follow(() => (wait = 1000));
    } catch {
      // Lost, refused, or silent for too long.
    }
    clearTimeout(abort.timer);
    if (over || leaving) break;
    lostSince ??= new Date().toISOString().slice(11, 19);
    broadcast({ kind: "lost", since: lostSince });
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, wait * (0.75 + Math.random() / 2));
    });
    wait = Math.min(wait * 2, 30000);
  }
  leads = false;
}

async function follow(connected) {
  abort = new AbortController();
  expectSign();
  const response = await fetchLive("/live", { headers: { "Last-Event-ID": String(last) }, signal: abort.signal });
  if (response.status === 401) return broadcast({ kind: "ended" });
  if (!response.ok) throw new Error(response.status);
  const regained = lostSince !== null;
  lostSince = null;
  connected();
  broadcast(liveMessage(regained));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", part; !(part = await reader.read()).done; ) {
    expectSign();
    const messages = (text + part.value).split("\n\n");
    text = messages.pop();
    messages.forEach(receive);
  }
}

function expectSign() {
  const current = abort;
  clearTimeout(current.timer);
  current.timer = setTimeout(() => current.abort(), SILENT);
}

function receive(text) {
  const fields = Object.fromEntries(text.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 2)]));
  const id = Number(fields.id);
  if (fields.event === "ended" || fields.event === "reset") return broadcast({ kind: fields.event });
  if (!fields.id) return;
  if (fields.event !== "change") return broadcast({ kind: "at", id });
  const change = JSON.parse(fields.data);
  recent.push({ id, change });
  if (recent.length > RECENT) floor = recent.shift().id;
  broadcast({ kind: "change", id, change });
}

// What the page shows

let note = null;
let noteTimer = 0;

function showState(text, state) {
  for (const each of document.querySelectorAll("[data-live-state]")) {
    each.hidden = false;
    each.dataset.state = state;
    if (each.textContent !== text) each.textContent = text;
  }
}

function showNote(title, text, link) {
  note?.remove();
  note = document.createElement("div");
  note.className = "note warn";
  note.setAttribute("role", "status");
  note.innerHTML = '<svg class="i" aria-hidden="true"><use href="#i-warn"/></svg><div><strong></strong><p></p></div>';
  note.querySelector("strong").textContent = title;
  note.querySelector("p").textContent = text;
  if (link) note.append(link);
  document.querySelector(".page")?.prepend(note);
}

function showLive() {
  clearTimeout(noteTimer);
  noteTimer = 0;
  note?.remove();
  note = null;
  showState("Live", "live");
  pause(false);
}

function showLost(since) {
  pause(true);
  showState(`Not live since ${since}`, "lost");
  const text = "What is shown may be old. The page connects again by itself.";
  noteTimer ||= setTimeout(() => showNote(`Not live since ${since} UTC`, text), NOTE_AFTER);
}

function end() {
  over = true;
  clearTimeout(noteTimer);
  stop();
  abort?.abort();
  wake();
  showState("Signed out", "lost");
  const link = document.createElement("a");
  link.className = "btn s act";
  link.href = `/signin?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = "Sign in";
  showNote("You are signed out", "What is shown is no longer updated.", link);
}

function start() {
  leaving = false;
  if (!channel) return void lead();
  joined = false;
  navigator.locks.request(name, () => (leaving || over ? null : lead()));
  channel.postMessage({ kind: "hello" });
}

if (liveSession) {
  onSignedOut(() => broadcast({ kind: "ended" }));
  if (channel) channel.onmessage = ({ data }) => take(data);
  addEventListener("online", () => wake());
  // A page in the cache for "back" gives the stream to another tab, and goes on when it is shown again.
  addEventListener("pagehide", () => {
    leaving = true;
    abort?.abort();
    wake();
  });
  addEventListener("pageshow", ({ persisted }) => {
    if (!persisted || over) return;
    start();
    refreshAll();
  });
  start();
}
