// Comforts of pages that also work without them: filters apply at once, ticked rows are counted, times go on, texts are
// copied, menus close.

// The server's clock: that of the browser may be wrong.
const ahead = Number(document.body.dataset.now || Date.now()) - Date.now();

function all(selector, within = document) {
  return [...within.querySelectorAll(selector)];
}

// A form with data-filters is sent when a choice changes, or when the menu of the choice closes; without empty fields.
const changedFilters = new Set();
document.addEventListener("change", ({ target }) => {
  const form = target.form;
  if (form?.dataset.filters === undefined || target.matches("[type=search], [type=text]")) return;
  if (target.closest("details")) changedFilters.add(form);
  else form.requestSubmit();
});
document.addEventListener(
  "toggle",
  ({ target }) => {
    const form = target.closest("form");
    if (!target.open && changedFilters.delete(form)) form.requestSubmit();
  },
  true,
);
document.addEventListener("formdata", ({ target, formData }) => {
  if (target.dataset.filters === undefined) return;
  for (const name of new Set(formData.keys())) if (formData.getAll(name).every((value) => value === "")) formData.delete(name);
});

// Ticked rows: data-bulk is the bar, data-select-all the box of the head.
function countTicked(form) {
  const bar = form.querySelector("[data-bulk]");
  if (!bar) return;
  const boxes = all("tbody input[type=checkbox]", form);
  const ticked = boxes.filter((box) => box.checked).length;
  bar.hidden = ticked === 0;
  for (const count of all("[data-bulk-count]", bar)) count.textContent = `${ticked} of ${boxes.length} selected`;
  for (const head of all("[data-select-all]", form)) {
    head.hidden = false;
    head.checked = ticked > 0 && ticked === boxes.length;
    head.indeterminate = ticked > 0 && ticked < boxes.length;
  }
}
function tickAll(form, checked) {
  for (const box of all("tbody input[type=checkbox]", form)) box.checked = checked;
  countTicked(form);
}
document.addEventListener("change", ({ target }) => {
  const form = target.closest("form");
  if (target.matches("[data-select-all]")) tickAll(form, target.checked);
  else if (form && target.matches("tbody input[type=checkbox]")) countTicked(form);
});

// Times: data-ago as "4 min ago", data-since as the running time since then.
function ago(time, now) {
  const seconds = (now - time) / 1000;
  if (seconds < 60) return seconds < 10 ? "just now" : `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return time.toUTCString().slice(5, 11).replace(/^0/, "");
}
function runningTime(seconds) {
  const text = new Date(seconds * 1000).toISOString().slice(14, 19);
  return seconds < 3600 ? text.replace(/^0/, "") : `${Math.floor(seconds / 3600)}:${text}`;
}
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function showTimes() {
  if (document.hidden) return;
  const now = new Date(Date.now() + ahead);
  // Dates and times to come do not change.
  for (const each of all("time[data-ago]"))
    if (/now|ago/.test(each.textContent)) setText(each, ago(new Date(each.dateTime), now));
  for (const each of all("[data-since]"))
    setText(each, runningTime(Math.max(0, Math.floor((now - new Date(each.dataset.since)) / 1000))));
}
setInterval(showTimes, 1000);

// data-copy is the id of the element whose text is copied.
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-copy]");
  const source = button && document.getElementById(button.dataset.copy);
  if (!source) return;
  const label = button.lastChild;
  const before = (button.copiedFrom ??= label.textContent);
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    label.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    label.textContent = "Press Ctrl-C";
  }
  setTimeout(() => (label.textContent = before), 2000);
});

// Menus close with Escape and with a click elsewhere.
const openMenus = () => all("details:is(.menu, .filter)[open]");
document.addEventListener("click", ({ target }) => {
  for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", ({ key, target }) => {
  const menu = key === "Escape" && openMenus().find((each) => each.contains(target));
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

function prepare() {
  for (const each of all("[data-copy]")) each.hidden = !navigator.clipboard;
  for (const form of all("form")) countTicked(form);
}

document.documentElement.classList.add("script");
document.addEventListener("mainstay:shown", prepare);
addEventListener("pageshow", prepare);
prepare();
for (const log of all(".log")) log.scrollTop = log.scrollHeight;
for (const lit of all("svg.lc .lit")) {
  const view = lit.ownerSVGElement.parentElement;
  const { left, width } = lit.getBoundingClientRect();
  view.scrollLeft += left + width / 2 - view.getBoundingClientRect().left - view.clientWidth / 2;
}
