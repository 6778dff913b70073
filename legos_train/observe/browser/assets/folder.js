// The table, its filters, and updates while runs are active.

const SELECTS = { kind: (line) => line.kind, env: (line) => line.env, state: stateOf };
const LABELS = { kind: "kind", env: "environment", state: "state" };

function drawFilters() {
  const selects = Object.entries(SELECTS).map(([name, of]) => {
    const values = [...new Set(found.lines.map(of))].filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if (values.length < 2 && !state[name]) return null;
    return el("label", {}, LABELS[name], el("select", { "data-filter": name, onchange: (event) => set({ [name]: event.target.value }) }, option("", "all", !state[name]), ...values.map((value) => option(value, value, value === state[name]))));
  });
  const orders = [["changed", "last change"], ...Object.entries(TEXTS), ...found.columns.map(({ key, name }) => [key, name])];
  const order = el("select", { id: "order", onchange: (event) => sortBy(event.target.value) }, ...orders.map(([key, name]) => option(key, name, key === state.sort)));
  const way = el("button", { type: "button", id: "way", title: "Turn the order round", "aria-label": "Turn the order round", onclick: () => set({ down: !state.down }) }, state.down ? "\u2193" : "\u2191");
  byId("selects").replaceChildren(...selects.filter(Boolean), el("label", {}, "order", el("span", { class: "pair" }, order, way)));
  const shown = new Set(shownColumns(fitting()).map(({ key }) => key));
  byId("picks").replaceChildren(...found.columns.map(({ key, name }) => {
    const box = el("input", { type: "checkbox", onchange: (event) => pick(key, event.target.checked) });
    box.checked = shown.has(key);
    return el("label", {}, box, visible(name));
  }));
}

function set(change) {
  Object.assign(state, change);
  draw();
}

// Numbers sort from the best if there is one, texts from A.
function sortBy(key) {
  const better = found.columns.find((column) => column.key === key)?.better ?? 1;
  set(state.sort === key ? { down: !state.down } : { sort: key, down: better >= 0 });
  drawFilters();
}

function pick(key, on) {
  state.columns ??= new Set(shownColumns(fitting()).map((column) => column.key));
  state.columns[on ? "add" : "delete"](key);
  draw();
}

function choose(line, on) {
  state.chosen[on ? "add" : "delete"](keyOf(line));
  draw();
}

function heading(key, name, kind = null) {
  const way = state.sort === key ? (state.down ? "descending" : "ascending") : null;
  return el("th", { scope: "col", class: kind, "aria-sort": way }, el("button", { type: "button", title: visible(`Order by ${name}`), onclick: () => sortBy(key) }, visible(name), way ? (state.down ? " \u2193" : " \u2191") : ""));
}

function lineNode(line, columns, lines) {
  const box = el("input", { type: "checkbox", "aria-label": visible(`Choose ${nameOf(line)}`), onchange: (event) => choose(line, event.target.checked) });
  box.checked = state.chosen.has(keyOf(line));
  const now = stateOf(line);
  const kinds = { running: "good", unfinished: "odd", stopped: "odd" };
  const label = el("label", {}, box, el("b", {}, visible(nameOf(line))));
  const about = [line.kind === "run" ? null : line.kind, since(line.changed)].filter(Boolean).join(" \u00b7 ");
  return el("tr", { class: box.checked ? "here" : null },
    el("th", { scope: "row" }, label, el("div", { class: "soft about" }, now === "finished" ? "" : chip(now, kinds[now]), `${about} `, ...linksOf(line).flatMap((link) => [" ", link])), line.note ? el("div", { class: "minus about" }, visible(line.note)) : ""),
    el("td", { "data-name": "environment" }, visible(line.env)),
    el("td", { "data-name": "model or policy", class: "words" }, visible(line.policy)),
    ...columns.map((column) => {
      const cell = numberCell(line, column, lines);
      cell.dataset.name = column.name;
      if (!cell.textContent) cell.classList.add("empty");
      return cell;
    }),
    el("td", { class: line.curve.length > 1 ? null : "empty" }, spark(line)));
}

function draw() {
  const lines = fitting();
  const columns = shownColumns(lines);
  const runs = found.lines.filter((line) => line.kind === "run").length;
  const folders = new Set(found.lines.map((line) => line.id)).size - runs;
  const older = found.left_out ? ` \u00b7 the newest; ${count(found.left_out, "older one")} left out` : "";
  byId("summary").textContent = visible(`${found.folder} \u00b7 ${count(runs, "run")}, ${count(folders, "evaluation")}${lines.length < found.lines.length ? ` \u00b7 ${lines.length} of ${found.lines.length} lines` : ""}${older}${live ? " \u00b7 live" : ""}`);
  document.querySelector("#lines thead").replaceChildren(el("tr", {}, heading("name", "name"), heading("env", "environment"), heading("policy", "model or policy"), ...columns.map(({ key, name }) => heading(key, name, "n")), el("th", { scope: "col" }, "over the steps")));
  document.querySelector("#lines tbody").replaceChildren(...lines.map((line) => lineNode(line, columns, lines)));
  byId("tablebox").hidden = lines.length === 0;
  byId("none").hidden = lines.length > 0;
  if (byId("way")) byId("way").textContent = state.down ? "\u2193" : "\u2191";
  drawComparison();
}

async function look(generation) {
  let next = generation;
  try {
    const answer = await fetch(`rows?generation=${generation}`, { cache: "no-store" });
    if (answer.ok) {
      const news = await answer.json();
      next = news.generation;
      if (news.found) {
        found = news.found;
        const busy = byId("filters").contains(document.activeElement); // not under the user's hands
        if (!busy) drawFilters();
        draw();
      }
    }
  } catch {
    byId("summary").textContent = "the server has stopped; this page stays as it is";
  }
  setTimeout(() => look(next), document.hidden ? 10000 : 1000 * live.every);
}

byId("text").addEventListener("input", (event) => set({ text: event.target.value }));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("numbers").addEventListener("toggle", drawFilters);
byId("theme").addEventListener("click", nextTheme);
byId("clear").addEventListener("click", () => {
  byId("text").value = "";
  set({ text: "", kind: "", env: "", state: "" });
  drawFilters();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input[type=search], select")) return;
  if (event.key === "t") nextTheme();
  if (event.key === "/") {
    event.preventDefault();
    byId("text").focus();
  }
});
drawFilters();
draw();
document.documentElement.dataset.ready = "1";
if (live) setTimeout(() => look(live.generation), 500 * live.every);
