// An episode: its facts, and its tables within tables, each with its seats side by side.

const fold = { all: null }; // the last choice of "fold all" or "unfold all"

function tree(row) {
  const root = { path: "", seats: [], children: new Map() };
  row.seats.forEach((seat, index) => {
    const names = seat.agent.split("/");
    names.pop();
    let node = root;
    for (const name of names) {
      if (!node.children.has(name)) node.children.set(name, { path: node.path ? `${node.path}/${name}` : name, seats: [], children: new Map() });
      node = node.children.get(name);
    }
    node.seats.push(index);
  });
  return root;
}

const within = (node) => [...node.seats, ...[...node.children.values()].flatMap(within)];

function credit(view, seatIndex) {
  const turns = view.episode.seats[seatIndex].turns;
  const given = turns.map((turn) => turn.advantage).filter(finite);
  const mean = given.length ? given.reduce((a, b) => a + b, 0) / given.length : null;
  const steps = el("div", { class: "steps" }, ...turns.map((turn, index) => {
    const told = `turn ${index + 1}: reward ${signed(turn.reward)}, advantage ${"advantage" in turn ? signed(turn.advantage) : "none"}`;
    return el("button", { type: "button", class: advantageClass(turn.advantage, view.largest), title: told, "aria-label": `${visible(view.row.seats[seatIndex].agent)}, ${told}`, onclick: () => goTo(view.index, [seatIndex, index], view.seat) }, String(index + 1));
  }));
  return [el("td", {}, amount(mean), given.some((value) => value !== given[0]) ? el("span", { class: "soft" }, " mean") : null), el("td", {}, steps)];
}

function versions(seat) {
  const known = seat.turns.map((turn) => turn.version).filter(finite);
  if (!known.length) return "\u2013";
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return low === high ? `v${low}` : `v${low}\u2013v${high}`;
}

function seatsTable(view, seats) {
  const heads = ["agent", "role", "learner", "player", "outcome", "return", "credit", "by turn", "weights", "trained"];
  const skipped = view.row.measured ? new Set(["credit", "trained"]) : new Set(); // nothing is learned in an evaluation
  if (!view.row.seats.some((seat) => seat.learner)) skipped.add("learner");
  const lines = seats.map((index) => {
    const facts = view.row.seats[index];
    const seat = view.episode.seats[index];
    const alone = view.seat === index;
    const name = el("button", { type: "button", "aria-pressed": String(alone), title: alone ? "Show all seats again" : "Show only what this seat saw", onclick: () => goTo(view.index, null, alone ? null : index) }, visible(facts.agent.split("/").pop()));
    const carry = finite(seat.carry) && seat.carry !== 0 ? el("span", { class: "soft" }, ` (${signed(seat.carry)} without a turn)`) : null;
    const cells = [el("td", {}, name), el("td", {}, visible(facts.role)), el("td", {}, visible(facts.learner ?? "\u2013")), el("td", {}, visible(facts.player)), el("td", {}, outcomeChip(facts.outcome)), el("td", {}, amount(facts.return), carry), ...credit(view, index), el("td", {}, versions(seat)), el("td", {}, chip(trainedText(facts), facts.trained ? "good" : ""))];
    return el("tr", {}, ...cells.filter((_, at) => !skipped.has(heads[at])));
  });
  return el("div", { class: "scroll" }, el("table", { class: "seats" }, el("thead", {}, el("tr", {}, ...heads.filter((head) => !skipped.has(head)).map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, ...lines)));
}

// Whether a turn was taken without knowing an earlier one: detected for speeches only, since a short move may occur in any prompt.
function unseen(episode, [seat, turn], [later, at]) {
  const said = episode.seats[seat].turns[turn].action.split("</think>").pop().trim();
  return said.length >= 20 && !episode.seats[later].turns[at].messages.some(({ content }) => String(content ?? "").includes(said));
}

function grid(view, seats) {
  const box = el("div", { class: "grid" });
  box.style.setProperty("grid-template-columns", `repeat(${seats.length}, minmax(17rem, 1fr))`);
  let line = 1;
  let beside = []; // the contents of this line, [column, seat, turn]
  view.episode.order.forEach(([seat, turn], at) => {
    const column = seats.indexOf(seat);
    if (column < 0) return;
    const left = beside.every(([other]) => other < column);
    const unheard = beside.every(([other, s, t]) => other !== column && unseen(view.episode, [s, t], [seat, turn]));
    if (!left && !unheard) {
      line += 1;
      beside = [];
    }
    beside.push([column, seat, turn]);
    const one = card(view, seat, turn, view.episode.played ? `${at + 1} of ${view.row.turns}` : "");
    one.style.setProperty("grid-area", `${line} / ${column + 1}`);
    box.append(one);
  });
  return box.children.length ? box : el("p", { class: "soft" }, "No turns here.");
}

function tableNode(view, node, open) {
  const all = within(node);
  const shown = view.seat === null ? node.seats : node.seats.filter((seat) => seat === view.seat);
  const turns = all.reduce((sum, seat) => sum + view.episode.seats[seat].turns.length, 0);
  const box = el("details", { class: "table", "data-path": node.path });
  const name = node.path.split("/").pop() || "Table";
  box.append(el("summary", {}, visible(name), el("span", { class: "soft" }, ` \u00b7 ${count(all.length, "seat")} \u00b7 ${count(turns, "turn")}`)));
  const inside = el("div", { class: "inside" });
  box.append(inside);
  box.fill = () => {
    if (inside.children.length) return;
    if (shown.length) inside.append(seatsTable(view, node.seats), grid(view, shown));
    for (const child of node.children.values()) {
      if (view.seat === null || within(child).includes(view.seat)) inside.append(tableNode(view, child, open));
    }
  };
  box.addEventListener("toggle", () => box.open && box.fill());
  if (open || node.path === "" || view.seat !== null) {
    box.fill();
    box.open = true;
  }
  return box;
}

function facts(view) {
  const { row, episode } = view;
  const run = header.runs[row.run];
  const boxes = [];
  const add = (name, text) => boxes.push(el("details", { class: "facts" }, el("summary", {}, name), el("pre", { tabindex: 0 }, visible(text))));
  const pretty = (value) => JSON.stringify(value, null, 1);
  if (Object.keys(episode.info).length || Object.keys(episode.options).length) add("The environment's info on the episode", pretty({ options: episode.options, info: episode.info }));
  const seats = Object.fromEntries(row.seats.map((seat, index) => [seat.agent, episode.seats[index].info]));
  if (Object.values(seats).some((info) => Object.keys(info).length)) add("Its info on each seat", pretty(seats));
  const metrics = run.metrics[String(row.step)];
  if (metrics) add(`Metrics of step ${row.step}`, pretty(metrics));
  if (run.config) add("Settings of the run", run.config);
  return boxes;
}

function controls(view) {
  const { row, index } = view;
  const at = state.found.indexOf(index);
  const move = (by) => goTo(state.found[at + by], null, null);
  const seatChoice = el("select", { id: "seat", onchange: (event) => goTo(index, null, event.target.value === "" ? null : Number(event.target.value)) }, option("", "all seats", view.seat === null), ...row.seats.map((seat, number) => option(number, seat.agent, view.seat === number)));
  const colour = el("select", { id: "colour", onchange: (event) => setColour(event.target.value) }, ...Object.entries(MODES).map(([mode, [name]]) => option(mode, name, mode === document.body.dataset.colour)));
  const worst = worstSeat(row, state.filters);
  return el("div", { class: "bar" },
    el("button", { type: "button", class: "back", title: "Back to the list (Esc)", onclick: () => leave() }, "\u2190 List"),
    el("button", { type: "button", title: "Episode before (k)", "aria-label": "Episode before", disabled: at <= 0, onclick: () => move(-1) }, "\u2039"),
    el("button", { type: "button", title: "Next episode (j)", "aria-label": "Next episode", disabled: at < 0 || at + 1 >= state.found.length, onclick: () => move(1) }, "\u203a"),
    el("button", { type: "button", id: "worst", disabled: worst < 0, title: "The turn with the largest drop in exact value, else the most negative advantage (w)", onclick: () => goWorst(index) }, "Worst turn"),
    el("button", { type: "button", title: "Fold or unfold all tables (f)", onclick: () => foldAll() }, "Fold / unfold"),
    el("label", {}, "Seen by", seatChoice), ...(row.tokens ? [el("label", {}, "Colour", colour)] : []));
}

function showEpisode(index, seat) {
  const row = rows[index];
  const episode = body(index);
  const view = { index, row, episode, seat, largest: largestAdvantage(episode) };
  const when = row.measured ? [visible(row.measured.join(" against "))] : [`step ${visible(row.step)}`, `policy version ${visible(row.version ?? "\u2013")}`];
  const details = [...when, `seed ${visible(row.seed ?? "\u2013")}`, row.group === null ? null : `group ${visible(row.group)}`, count(row.turns, "turn"), row.tokens ? count(row.tokens, "token") : null, header.runs.length > 1 ? header.runs[row.run].label : null];
  const main = byId("main");
  near.disconnect();
  hideTip();
  main.replaceChildren(
    el("div", { class: "head" }, el("h2", {}, `#${row.n} \u00b7 ${visible(row.env)}`), el("span", { class: "soft" }, details.filter(Boolean).join(" \u00b7 ")), typeof episode.info.outcome === "string" ? chip(episode.info.outcome) : null, episode.truncated ? chip("truncated", "odd") : null),
    controls(view), row.tokens ? el("div", { id: "legend" }, legend(document.body.dataset.colour)) : "", el("div", { class: "factbar" }, ...facts(view)),
    tableNode(view, tree(row), fold.all ?? row.turns <= 60));
  return view;
}

function foldAll() {
  const nested = [...document.querySelectorAll(".table:not([data-path=''])")];
  const root = document.querySelector(".table");
  if (!root) return;
  const targets = nested.length ? nested : [root];
  fold.all = !targets.some((table) => table.open);
  const each = (table) => {
    if (fold.all) table.fill();
    if (table !== root || !nested.length) table.open = fold.all;
    table.querySelectorAll(":scope > .inside > .table").forEach(each);
  };
  each(root);
}

// Opens the tables above a turn and shows it.
function showTurn(view, [seat, turn]) {
  const names = view.row.seats[seat].agent.split("/");
  names.pop();
  for (let depth = 0; depth <= names.length; depth++) {
    const path = names.slice(0, depth).join("/");
    const table = [...document.querySelectorAll(".table")].find((node) => node.dataset.path === path);
    if (!table) return;
    table.fill();
    table.open = true;
  }
  const box = byId(`turn-${seat}-${turn}`);
  if (!box) return;
  document.querySelector(".turn.here")?.classList.remove("here");
  box.fill?.();
  box.classList.add("here");
  box.focus({ preventScroll: true });
  box.scrollIntoView({ block: "center", inline: "center" });
}
