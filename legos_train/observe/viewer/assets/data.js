// The episodes: rows for the list, bodies kept as text until opened or searched, filters and order.

const [headerText, ...bodies] = byId("data").textContent.split("\n");
const header = JSON.parse(headerText);
const rows = header.rows;
const texts = [];
const LOST = new Set(["loss", "invalid"]);
const RANK = { exact: 0, advantage: 1, last: 2, luck: 3 };
const NOWHERE = { turn: -1, by: "last", value: null };

function body(index) {
  if (typeof bodies[index] === "string") bodies[index] = JSON.parse(bodies[index]);
  return bodies[index];
}

function strings(value, found) {
  if (typeof value === "string") found.push(value);
  else if (Array.isArray(value)) for (const item of value) strings(item, found);
  else if (value !== null && typeof value === "object") for (const item of Object.values(value)) strings(item, found);
  return found;
}

// Token texts are left out: the action has the same text in one piece.
function searchText(index) {
  if (texts[index] === undefined) {
    const found = strings(rows[index], [`#${rows[index].n}`]);
    const { seats, ...rest } = body(index);
    strings(rest, found);
    for (const seat of seats) {
      strings(seat.info, found);
      for (const turn of seat.turns) found.push(turn.action, ...turn.messages.map((message) => String(message.content ?? "")));
    }
    texts[index] = found.join("\n").toLowerCase();
  }
  return texts[index];
}

// What the agent read before a turn; the log's repetitions are stored once.
function observation(seat, turn) {
  const now = seat.turns[turn];
  if (now.kept === 0) return now.messages;
  const before = seat.turns[turn - 1];
  const known = [...observation(seat, turn - 1), { role: "assistant", content: before.action }];
  return [...known.slice(0, now.kept), ...now.messages];
}

const SEAT_FILTERS = {
  outcome: (seat) => seat.outcome ?? "",
  role: (seat) => seat.role,
  player: (seat) => seat.player,
  learner: (seat) => seat.learner ?? "",
  trained: (seat) => (seat.trained ? "trained" : `not: ${seat.why}`),
};
const ROW_FILTERS = { run: (row) => String(row.run), env: (row) => row.env, step: (row) => String(row.step) };
const LOST_FILTER = "loss or invalid";
const MEASURED = "the measured policies";

// The subjects of an evaluation: its policies or, in a tournament, everybody. Empty for a run.
function measuredPlayers() {
  const pairs = rows.flatMap((row) => (row.measured ? [row.measured] : []));
  const policies = new Set(pairs.map(([policy]) => policy));
  const others = pairs.filter(([policy, opponent]) => policy !== opponent).map(([, opponent]) => opponent);
  if (others.some((name) => policies.has(name))) others.forEach((name) => policies.add(name));
  return policies;
}
let measured = measuredPlayers();

function seatFits(seat, filters) {
  return Object.entries(SEAT_FILTERS).every(([name, of]) => {
    const wanted = filters[name];
    if (!wanted) return true;
    if (name === "outcome" && wanted === LOST_FILTER) return LOST.has(seat.outcome);
    if (name === "trained" && wanted === "not trained") return !seat.trained;
    if (name === "player" && wanted === MEASURED) return measured.has(seat.player);
    return of(seat) === wanted;
  });
}

// Whether the seat's player is trained or measured.
const isOurs = (seat) => (measured.size ? measured.has(seat.player) : seat.player === "policy");

// The seat whose worst turn comes first: among our losers, else all losers, else all; -1 if none has a turn.
function worstSeat(row, filters) {
  const fitting = row.seats.map((seat, index) => index).filter((index) => row.seats[index].worst && seatFits(row.seats[index], filters));
  const lost = fitting.filter((index) => LOST.has(row.seats[index].outcome));
  const ours = lost.filter((index) => isOurs(row.seats[index]));
  const losers = ours.length ? ours : lost;
  const order = (index) => row.seats[index].worst;
  return (losers.length ? losers : fitting).reduce((best, index) => (best < 0 || worse(order(index), order(best)) ? index : best), -1);
}

const worse = (a, b) => (a.by === b.by ? (a.value ?? 0) < (b.value ?? 0) : RANK[a.by] < RANK[b.by]);

const ORDERS = {
  newest: ["Newest first", (a, b) => b - a],
  oldest: ["Oldest first", (a, b) => a - b],
  worst: ["Worst turn first", (a, b, f) => compareWorst(rows[a], rows[b], f) || a - b],
  lowest: ["Lowest return first", (a, b, f) => lowest(rows[a], f) - lowest(rows[b], f) || a - b],
  longest: ["Most turns first", (a, b) => rows[b].turns - rows[a].turns || a - b],
};

function compareWorst(a, b, filters) {
  const [x, y] = [a, b].map((row) => row.seats[worstSeat(row, filters)]?.worst ?? NOWHERE);
  return worse(x, y) ? -1 : worse(y, x) ? 1 : 0;
}

const lowest = (row, filters) => Math.min(...row.seats.filter((seat) => seatFits(seat, filters)).map((seat) => (finite(seat.return) ? seat.return : 0)));

function select(filters) {
  const wanted = (filters.text ?? "").toLowerCase();
  const bySeat = Object.keys(SEAT_FILTERS).some((name) => filters[name]);
  const found = [];
  for (let index = 0; index < rows.length; index++) {
    const row = rows[index];
    if (!Object.entries(ROW_FILTERS).every(([name, of]) => !filters[name] || of(row) === filters[name])) continue;
    if (bySeat && !row.seats.some((seat) => seatFits(seat, filters))) continue;
    if (wanted && !searchText(index).includes(wanted)) continue;
    found.push(index);
  }
  const [, order] = ORDERS[filters.sort] ?? ORDERS.newest;
  return found.sort((a, b) => order(a, b, filters));
}

function choices(name) {
  const found = new Set();
  for (const row of rows) {
    if (name in ROW_FILTERS) found.add(ROW_FILTERS[name](row));
    else for (const seat of row.seats) found.add(SEAT_FILTERS[name](seat));
  }
  found.delete("");
  return [...found].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}
