// The list of episodes: filters above, and below only the visible rows.

const HEIGHT = 58;
const FILTERS = [["run", "run"], ["env", "environment"], ["outcome", "outcome"], ["role", "role"], ["player", "player"], ["learner", "learner"], ["step", "step"], ["trained", "trained"]];
const state = { filters: { sort: "newest" }, found: [], view: null, turn: null };
const drawn = new Map();
let typing = 0;

function drawFilters() {
  const selects = FILTERS.map(([name, label]) => {
    let values = choices(name);
    if (name === "outcome" && values.some((value) => LOST.has(value))) values = [LOST_FILTER, ...values];
    if (name === "player" && measured.size && values.length > measured.size) values = [MEASURED, ...values];
    if (name === "trained" && values.some((value) => value !== "trained")) values = ["not trained", ...values];
    const chosen = state.filters[name] ?? "";
    if ((values.length < 2 || (name === "trained" && measured.size)) && !chosen) return null;
    const shown = (value) => (name === "run" ? header.runs[Number(value)].label : name === "outcome" ? spaced(value) : value);
    return el("label", {}, label, el("select", { "data-filter": name, class: chosen ? "set" : null, onchange: (event) => filter({ [name]: event.target.value }) }, option("", "all", chosen === ""), ...values.map((value) => option(value, shown(value), value === chosen))));
  });
  const sort = el("select", { "data-filter": "sort", onchange: (event) => filter({ sort: event.target.value }) }, ...Object.entries(ORDERS).map(([name, [label]]) => option(name, label, name === state.filters.sort)));
  byId("selects").replaceChildren(...selects.filter(Boolean), el("label", {}, "order", sort));
  byId("text").value = state.filters.text ?? "";
}

function filter(change, redraw = false) {
  clearTimeout(typing); // pending typed input would undo a button pressed right after it
  Object.assign(state.filters, change);
  if (redraw) {
    drawFilters();
    showOverview(false);
  }
  for (const node of document.querySelectorAll("#selects select")) node.classList.toggle("set", node.dataset.filter !== "sort" && node.value !== "");
  refresh();
  byId("list").scrollTop = 0;
}

// How many episodes were played if the log has only some of them; 0 if unknown.
function sampled() {
  const played = header.runs.reduce((sum, run) => sum + run.played, 0);
  return header.runs.every((run) => run.played) && played > rows.length ? played : 0;
}

function refresh() {
  state.found = select(state.filters);
  drawn.clear();
  byId("rows").replaceChildren();
  byId("rows").style.setProperty("height", `${state.found.length * HEIGHT}px`);
  byId("none").hidden = state.found.length > 0 || !rows.length;
  byId("list").hidden = state.found.length === 0;
  const older = header.runs.reduce((sum, run) => sum + run.older, 0);
  const names = header.runs.map((run) => visible(run.label)).join(" and ");
  byId("summary").textContent = `${names} \u00b7 ${state.found.length === rows.length ? "" : `${state.found.length.toLocaleString("en")} of `}${count(rows.length, "episode")}${sampled() ? `, a sample of ${sampled().toLocaleString("en")} played` : ""}${older ? ` (${older.toLocaleString("en")} older ones left out)` : ""}${header.live ? " \u00b7 live" : ""}`;
  draw();
}

// `x@best` for `runs/x@best`, the model of an endpoint; the seats table has the whole name.
const shortName = (player) => player.split(/[/#]/).filter(Boolean).pop() ?? player;

// Whose weights sit there: the learner in a run with several, and the player unless that is the policy itself.
const playedBy = (seat) => [seat.learner, seat.player === "policy" ? null : shortName(seat.player)].filter(Boolean).join(", ");

function rowNode(at) {
  const index = state.found[at];
  const row = rows[index];
  const worst = worstSeat(row, state.filters);
  const asked = state.filters.player || state.filters.learner || !row.seats.some(isOurs);
  const lost = worst >= 0 && LOST.has(row.seats[worst].outcome) && (asked || isOurs(row.seats[worst]));
  const few = row.seats.slice(0, 3);
  const byPlayer = row.measured && new Set(row.seats.map((seat) => seat.player)).size === row.seats.length;
  const seats = few.flatMap((seat, number) => {
    const agent = seat.agent.split("/").pop();
    const player = playedBy(seat);
    const who = byPlayer ? player : player ? `${agent} (${player})` : agent; // an evaluation is about players
    const kind = { good: "plus", bad: "minus" }[OUTCOMES[seat.outcome]] ?? "";
    return [number ? " \u00b7 " : "", visible(`${who} `), el("span", { class: kind }, visible(`${signed(seat.return)}${seat.outcome ? ` ${spaced(seat.outcome)}` : ""}`))];
  });
  if (row.seats.length > few.length) seats.push(` \u00b7 ${row.seats.length - few.length} more`);
  const where = [row.measured ? null : `step ${visible(row.step)}`, count(row.turns, "turn"), header.runs.length > 1 ? visible(header.runs[row.run].label) : null].filter(Boolean).join(" \u00b7 ");
  const open = el("button", { type: "button", class: "open", onclick: () => goTo(index, null, null) }, el("span", { class: "first" }, el("b", {}, `#${row.n} ${visible(row.env)}`), el("span", { class: "soft" }, ` ${where}`)), el("span", { class: "soft" }, ...seats));
  const node = el("li", { class: "row", "aria-posinset": at + 1, "aria-setsize": state.found.length }, open);
  if (lost) {
    const { by, value } = row.seats[worst].worst;
    const what = { exact: `largest drop in exact value, ${signed(value)}`, advantage: `most negative advantage, ${signed(value)}`, last: "last move", luck: "last move; no move was a mistake" }[by];
    const short = { exact: `\u2198 ${signed(value)}`, advantage: "\u2198 worst turn", last: "\u2198 last turn", luck: "no mistake" }[by]; // a number is always exact
    node.append(el("button", { type: "button", class: by === "exact" || by === "advantage" ? "jump" : "jump soft", title: `Go to the turn with the ${what}`, "aria-label": `Episode ${row.n}: go to the turn with the ${what}`, onclick: () => goWorst(index) }, short));
  }
  node.style.setProperty("transform", `translateY(${at * HEIGHT}px)`);
  return node;
}

function draw() {
  const list = byId("list");
  const from = Math.max(0, Math.floor(list.scrollTop / HEIGHT) - 6);
  const to = Math.min(state.found.length, Math.ceil((list.scrollTop + list.clientHeight) / HEIGHT) + 6);
  for (const [at, node] of drawn) {
    if (at < from || at >= to) {
      node.remove();
      drawn.delete(at);
    }
  }
  for (let at = from; at < to; at++) {
    if (!drawn.has(at)) {
      const node = rowNode(at);
      const after = [...drawn.entries()].find(([other]) => other > at);
      byId("rows").insertBefore(node, after ? after[1] : null);
      drawn.set(at, node);
    }
    drawn.get(at).classList.toggle("here", state.found[at] === state.view?.index);
  }
  const ordered = [...drawn.entries()].sort(([a], [b]) => a - b);
  drawn.clear();
  for (const [at, node] of ordered) drawn.set(at, node);
}

// Scrolls to the open episode's row.
function follow() {
  const at = state.found.indexOf(state.view?.index);
  const list = byId("list");
  if (at >= 0 && (at * HEIGHT < list.scrollTop || (at + 1) * HEIGHT > list.scrollTop + list.clientHeight)) {
    list.scrollTop = at * HEIGHT - list.clientHeight / 2;
  }
  draw();
}

function focusRow(by) {
  const active = document.activeElement?.closest?.(".row");
  const now = [...drawn.entries()].find(([, node]) => node === active)?.[0];
  if (now === undefined) return false;
  const to = Math.max(0, Math.min(state.found.length - 1, now + by));
  const list = byId("list");
  if (to * HEIGHT < list.scrollTop) list.scrollTop = to * HEIGHT;
  if ((to + 1) * HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = (to + 1) * HEIGHT - list.clientHeight;
  draw();
  drawn.get(to)?.querySelector(".open").focus({ preventScroll: true });
  return true;
}
