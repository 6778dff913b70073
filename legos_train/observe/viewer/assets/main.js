// Addresses, keys, theme, and new episodes of an active run. The address holds what is open: #e=RUN.LINE&t=SEAT.TURN&s=SEAT

function address(index, turn, seat) {
  const row = rows[index];
  return `#e=${row.run}.${row.n}${turn ? `&t=${turn.join(".")}` : ""}${seat === null ? "" : `&s=${seat}`}`;
}

function goTo(index, turn, seat) {
  if (index === undefined) return;
  const hash = address(index, turn, seat);
  if (location.hash === hash) arrive();
  else location.hash = hash;
}

function goWorst(index) {
  const seat = worstSeat(rows[index], state.filters);
  if (seat >= 0) goTo(index, [seat, rows[index].seats[seat].worst.turn], null);
}

function leave() {
  history.pushState(null, "", location.pathname + location.search);
  arrive();
}

function arrive() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const [run, n] = (asked.get("e") ?? "").split(".").map(Number);
  const index = rows.findIndex((row) => row.run === run && row.n === n);
  document.body.classList.toggle("has-open", index >= 0);
  if (index >= 0) showOverview(false);
  if (index < 0) {
    state.view = null;
    welcome();
    return follow();
  }
  const known = (seat) => Number.isInteger(seat) && seat >= 0 && seat < rows[index].seats.length;
  const seat = asked.has("s") && known(Number(asked.get("s"))) ? Number(asked.get("s")) : null;
  const same = state.view?.index === index && state.view.seat === seat;
  if (!same) {
    state.view = showEpisode(index, seat);
    byId("main").scrollTop = 0;
  }
  const turn = (asked.get("t") ?? "").split(".").map(Number);
  state.turn = turn.length === 2 && known(turn[0]) ? turn : null;
  if (state.turn) showTurn(state.view, state.turn);
  else if (!same) byId("main").focus({ preventScroll: true });
  follow();
}

// In the order of play; turns of hidden seats are skipped.
function stepTurn(by) {
  const { view, turn } = state;
  if (!view) return;
  const order = view.episode.order.filter(([seat]) => view.seat === null || seat === view.seat);
  const at = turn ? order.findIndex(([seat, number]) => seat === turn[0] && number === turn[1]) : by > 0 ? -1 : order.length;
  const to = order[at + by];
  if (to) goTo(view.index, to, view.seat);
}

function setColour(mode) {
  document.body.dataset.colour = mode;
  byId("legend")?.replaceChildren(legend(mode));
  if (byId("colour")) byId("colour").value = mode;
}

function nextColour() {
  const modes = Object.keys(MODES);
  setColour(modes[(modes.indexOf(document.body.dataset.colour) + 1) % modes.length]);
}

function lostGames() {
  const seats = rows.flatMap((row) => row.seats);
  const some = (test) => seats.some(test) && !seats.every(test);
  const player = some((seat) => measured.has(seat.player)) ? MEASURED : some((seat) => seat.player === "policy") ? "policy" : "";
  filter({ text: "", run: "", env: "", role: "", learner: "", step: "", trained: "", outcome: LOST_FILTER, player, sort: "worst" }, true);
  document.body.classList.remove("has-open");
  byId("list").querySelector(".open")?.focus();
}

// A narrow window shows either the list or the overview.
function showOverview(open) {
  document.body.classList.toggle("has-overview", open);
  byId("overview").setAttribute("aria-pressed", String(open));
}

function toggleOverview() {
  const open = document.body.classList.contains("has-open") || !document.body.classList.contains("has-overview");
  if (state.view) leave();
  showOverview(open);
}

function clearFilters() {
  state.filters = { sort: state.filters.sort };
  filter({}, true);
}

const moveEpisode = (by) => {
  const at = state.found.indexOf(state.view?.index);
  goTo(state.found[at < 0 ? 0 : at + by], null, null);
};

const seatKey = (key) => state.view && (key === "0" || Number(key) <= state.view.row.seats.length) && goTo(state.view.index, null, key === "0" ? null : Number(key) - 1);

const KEYS = [
  [["j"], "next episode", () => moveEpisode(1)],
  [["k"], "episode before", () => moveEpisode(-1)],
  [["n"], "next turn, in the order of play", () => stepTurn(1)],
  [["p"], "turn before", () => stepTurn(-1)],
  [["w"], "the worst turn of this episode", () => state.view && goWorst(state.view.index)],
  [["l"], "lost games, the worst first", lostGames],
  [["/"], "search", () => byId("text").focus()],
  [["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], "all seats (0), or only what the first, second \u2026 seat saw", seatKey],
  [["c"], "next colouring of the tokens", nextColour],
  [["f"], "fold or unfold all tables", foldAll],
  [["t"], "theme", nextTheme],
  [["?"], "this help", () => byId("keys").showModal()],
  [["Escape"], "back to the list", () => leave()],
];

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const field = event.target.closest?.("input, select, textarea");
  if (field && event.key !== "Escape") return;
  if (field) return field.blur();
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (focusRow(event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
    return;
  }
  const found = KEYS.find(([keys]) => keys.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found[2](event.key);
}

async function live() {
  try {
    const { generation, seen } = header.live;
    const answer = await fetch(`lines?generation=${generation}&seen=${seen}`, { cache: "no-store" });
    if (answer.ok) {
      const added = await answer.json();
      if (added.reload) return location.reload();
      if (added.rows.length) {
        rows.push(...added.rows);
        bodies.push(...added.bodies);
        header.live.seen = added.seen;
        header.runs.forEach((run, index) => {
          Object.assign(run.metrics, added.metrics[index]);
          run.played = added.played[index];
        });
        measured = measuredPlayers();
        if (!state.view) welcome();
        const { scrollTop } = byId("list");
        if (!byId("selects").contains(document.activeElement)) drawFilters(); // not under the user's hands
        refresh();
        byId("list").scrollTop = scrollTop;
        draw();
      }
    }
  } catch {
    byId("summary").textContent = "the server has stopped; this page stays as it is";
  }
  setTimeout(live, document.hidden ? 10000 : 1000 * header.live.every);
}

byId("text").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => filter({ text: event.target.value }), 150);
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("list").addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
byId("main").addEventListener("scroll", hideTip, { passive: true });
byId("clear").addEventListener("click", clearFilters);
byId("lost").addEventListener("click", lostGames);
byId("overview").addEventListener("click", toggleOverview);
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("keys-close").addEventListener("click", () => byId("keys").close());
byId("keylist").append(...KEYS.flatMap(([keys, what]) => [el("dt", {}, keys.length > 1 ? `${keys[0]}\u2013${keys.at(-1)}` : keys[0]), el("dd", {}, what)]));
addEventListener("keydown", onKey);
addEventListener("hashchange", arrive);
addEventListener("popstate", arrive);
addEventListener("resize", () => requestAnimationFrame(draw));
if (header.home) byId("title").prepend(el("a", { href: header.home }, "All runs"), " \u203a ");
drawFilters();
refresh();
arrive();
if (!rows.length && !header.live) showOverview(true);
document.documentElement.dataset.ready = "1";
if (header.live) setTimeout(live, 500 * header.live.every);
