// The palette: "/" or Ctrl-K searches services, agents, types and pages by part of their name. Results come from the
// page /search, which also works without script.

import { fetchLive } from "./regions.js";

const WAIT = 150;
let dialog = null;
let input, list, hint;
let active = -1;
let timer = 0;
let request = null;

function build() {
  dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Go to");
  dialog.innerHTML =
    '<div class="search"><svg class="i" aria-hidden="true"><use href="#i-search"/></svg>' +
    '<input type="text" role="combobox" aria-label="Search by name" aria-expanded="false"' +
    ' aria-controls="palette-list" aria-autocomplete="list" placeholder="Part of a name" autocomplete="off"' +
    ' maxlength="200"></div>' +
    '<p class="small muted" role="status"></p><ul id="palette-list" role="listbox" aria-label="Results" hidden></ul>';
  document.body.append(dialog);
  input = dialog.querySelector("input");
  [hint, list] = [...dialog.children].slice(1);
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, WAIT);
  });
  input.addEventListener("keydown", steer);
  list.addEventListener("click", ({ target }) => go(target.closest("[role=option]")));
  dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
  dialog.addEventListener("close", () => request?.abort());
}

function open() {
  if (!dialog) build();
  if (dialog.open) return;
  dialog.showModal();
  input.select();
  search();
}

function pagesNamed(text) {
  // An icon, the name, and perhaps a count.
  const links = [...document.querySelectorAll(".side .nav a")];
  const pages = links.map((link) => ({ href: link.pathname, name: link.childNodes[1].textContent.trim(), kind: "page" }));
  return pages.filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
}

async function search() {
  const text = input.value.trim();
  request?.abort();
  request = new AbortController();
  const pages = pagesNamed(text);
  if (!text) return show(pages, "");
  try {
    const response = await fetchLive(`/search?fragment=results&q=${encodeURIComponent(text)}`, { signal: request.signal });
    if (!response.ok) throw new Error(response.status);
    const found = document.createElement("template");
    found.innerHTML = await response.text();
    const rows = [...found.content.querySelectorAll("a[data-kind]")].map((link) => ({
      href: link.getAttribute("href"),
      name: link.textContent,
      kind: link.dataset.kind,
    }));
    const results = [...rows, ...pages];
    show(results, results.length ? "" : "Nothing has this in its name.");
  } catch (error) {
    if (error.name !== "AbortError") show(pages, "The server does not answer.");
  }
}

function show(results, text) {
  hint.textContent = text;
  list.replaceChildren(...results.map(makeOption));
  list.hidden = !results.length;
  input.setAttribute("aria-expanded", String(results.length > 0));
  choose(results.length && input.value.trim() ? 0 : -1);
}

function makeOption({ href, name, kind }, number) {
  const option = document.createElement("li");
  option.id = `palette-${number}`;
  option.setAttribute("role", "option");
  option.dataset.href = href;
  option.innerHTML = '<bdi></bdi><span class="muted"></span>';
  option.firstChild.textContent = name;
  option.lastChild.textContent = kind;
  return option;
}

function choose(number) {
  active = number;
  [...list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === active)));
  const option = list.children[active];
  if (option) input.setAttribute("aria-activedescendant", option.id);
  else input.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

function steer(event) {
  const count = list.children.length;
  if (event.key === "ArrowDown" && count) choose((active + 1) % count);
  else if (event.key === "ArrowUp" && count) choose(active > 0 ? active - 1 : count - 1);
  else if (event.key === "Enter") go(list.children[active]);
  else return;
  event.preventDefault();
}

function go(option) {
  if (!option) return;
  dialog.close();
  location.assign(option.dataset.href);
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select");
  const control = event.ctrlKey || event.metaKey;
  if (event.altKey || !(control ? event.key === "k" : event.key === "/" && !isTyping)) return;
  event.preventDefault();
  open();
});
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-palette]") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  open();
});
