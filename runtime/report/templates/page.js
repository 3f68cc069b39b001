"use strict";
// Everything can be read without this: it filters tables and marks lines that belong together.

for (const form of document.querySelectorAll("form.filter")) {
  const rows = [...document.getElementById(form.dataset.table).tBodies[0].rows];
  const count = form.querySelector("output");
  const apply = () => {
    const chosen = new FormData(form);
    const words = chosen.get("words").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden =
        (chosen.get("state") !== "" && row.dataset.state !== chosen.get("state")) ||
        (chosen.get("kind") !== "" && row.dataset.kind !== chosen.get("kind")) ||
        !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} ${form.dataset.rows || "cases"} shown`;
  };
  form.hidden = false;
  for (const kind of ["input", "change"]) form.addEventListener(kind, apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}

const code = document.querySelector(".panes[data-linked]");
if (code) {
  const status = document.getElementById("link-status");
  const linesOf = (item) => item.dataset.links.split(" ");
  const other = (item) => (item.id[0] === "s" ? "c" : "s");
  const partners = (item) =>
    linesOf(item).map((line) => document.getElementById(other(item) + line)).filter(Boolean);
  let pinned = null;

  // "3, 7 to 9"
  const ranges = (numbers) => {
    const found = [];
    for (const number of numbers.map(Number)) {
      const last = found[found.length - 1];
      if (last && number === last[1] + 1) last[1] = number;
      else found.push([number, number]);
    }
    return found.map(([a, b]) => (a === b ? `${a}` : `${a} to ${b}`)).join(", ");
  };
  const clear = () => {
    for (const item of code.querySelectorAll(".on")) item.classList.remove("on", "here");
  };
  const show = (item) => {
    clear();
    status.textContent = "";
    if (!item) return;
    item.classList.add("on", "here");
    for (const partner of partners(item)) partner.classList.add("on");
    const [from, to] = item.id[0] === "s" ? ["Sketch", "code"] : ["Code", "sketch"];
    status.textContent = `${from} line ${item.id.slice(1)}: ${to} lines ${ranges(linesOf(item))}`;
  };
  const reveal = (item) => {
    const partner = partners(item)[0];
    const frame = partner && partner.closest(".window");
    if (!frame) return;
    const top = partner.offsetTop - frame.scrollTop;
    if (top < 0 || top > frame.clientHeight - 40)
      frame.scrollTop = partner.offsetTop - frame.clientHeight / 3;
  };
  const toggle = (item) => {
    pinned = pinned === item ? null : item;
    show(item);
    reveal(item);
  };
  const within = (event) => event.target.closest("[data-links]");

  code.addEventListener("pointerover", (event) => {
    if (!pinned && event.pointerType !== "touch") show(within(event));
  });
  code.addEventListener("pointerleave", () => { if (!pinned) show(null); });
  code.addEventListener("focusin", (event) => { if (!pinned && within(event)) show(within(event)); });
  code.addEventListener("click", (event) => {
    const item = within(event);
    if (!item || String(getSelection())) return;
    if (event.target.closest("a")) event.preventDefault();
    toggle(item);
  });

  // One stop for the Tab key in each pane; arrows move between the linked lines.
  for (const pane of code.querySelectorAll(".window")) {
    const stops = [...pane.querySelectorAll("a.n")];
    stops.forEach((stop, place) => { stop.tabIndex = place === 0 ? 0 : -1; });
    pane.addEventListener("keydown", (event) => {
      const place = stops.indexOf(event.target);
      const moves = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: stops.length - 1 };
      if (event.key === "Escape") { pinned = null; show(null); }
      if (place < 0 || !(event.key in moves)) return;
      event.preventDefault();
      const next = stops[Math.min(Math.max(moves[event.key], 0), stops.length - 1)];
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      pinned = null;
      next.focus();
      reveal(next.closest("li"));
    });
  }
}

addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details.failure, details.fold")) part.open = true;
});
