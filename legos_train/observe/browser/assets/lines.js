// The lines: their data, which match the filters, and their order.

let found = JSON.parse(byId("data").textContent);
const live = found.live;
const state = { text: "", kind: "", env: "", state: "", sort: "changed", down: true, chosen: new Set(), columns: null };
const SHOWN = 8; // numbers shown in the table until others are picked
const TEXTS = { name: "name", env: "environment", policy: "model or policy" };
const CONDITION = /^(.+?)(<=|>=|<|>|=)(-?[\d.]+(?:e[+-]?\d+)?)$/i;

// A line's key: an evaluation has several.
const keyOf = (line) => [line.id, line.kind === "run" ? "" : line.env, line.kind === "run" ? "" : line.policy, line.opponent].join("\u0000");
const stateOf = (line) => (line.state === "unfinished" && Date.now() / 1000 - line.changed < 120 ? "running" : line.state.split(":")[0]);

function fits(line, words) {
  for (const name of ["kind", "env"]) if (state[name] && line[name] !== state[name]) return false;
  if (state.state && stateOf(line) !== state.state) return false;
  const text = [line.name, line.env, line.policy, line.opponent, line.kind, stateOf(line), ...Object.entries(line.settings).map(([name, value]) => `${name}=${value}`)].join("\n").toLowerCase();
  return words.every((word) => {
    const condition = CONDITION.exec(word);
    const column = condition && found.columns.find(({ key, name }) => key.toLowerCase() === condition[1] || name.toLowerCase() === condition[1]);
    if (!column) return text.includes(word);
    const [value, limit] = [line.numbers[column.key], Number(condition[3])];
    if (!finite(value)) return false;
    return { "<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit, "=": value === limit }[condition[2]];
  });
}

function fitting() {
  const words = state.text.toLowerCase().replaceAll(/\s*([<>]=?|=)\s*/g, "$1").split(/\s+/).filter(Boolean);
  return found.lines.filter((line) => fits(line, words)).sort(inOrder);
}

function inOrder(a, b) {
  const sign = state.down ? -1 : 1;
  if (state.sort in TEXTS) return -sign * String(a[state.sort]).localeCompare(String(b[state.sort]), "en", { numeric: true });
  const [x, y] = [a, b].map((line) => (state.sort === "changed" ? line.changed : line.numbers[state.sort]));
  if (!finite(x) || !finite(y)) return finite(x) ? -1 : finite(y) ? 1 : b.changed - a.changed; // without the number: last
  return sign * (x - y) || b.changed - a.changed;
}

// The numbers of the table: those picked, else the first that some visible line has.
function shownColumns(lines) {
  const some = found.columns.filter(({ key }) => lines.some((line) => key in line.numbers));
  return state.columns === null ? some.slice(0, SHOWN) : found.columns.filter(({ key }) => state.columns.has(key));
}

const COUNTED = new Set(["steps", "episodes", "tokens", "games"]);

function cellText(key, value) {
  if (!finite(value)) return "";
  if (COUNTED.has(key)) return value.toLocaleString("en");
  if (key === "seconds") return duration(value);
  return Math.abs(value) >= 100 ? String(Math.round(value)).replace("-", "\u2212") : number(value);
}

function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${number(seconds, 2)} s`;
  return whole < 3600 ? `${Math.floor(whole / 60)} min` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

function since(time) {
  const seconds = Math.max(0, Date.now() / 1000 - time);
  if (seconds < 60) return "just now";
  if (seconds < 86400) return `${duration(seconds)} ago`;
  return new Date(1000 * time).toISOString().slice(0, 10);
}

// 1 if a line's number is better than before its first step, -1 if worse, 0 if unknown.
function gainOf(line, { key, better }) {
  const [before, after] = [line.before[key], line.numbers[key]];
  return finite(before) && finite(after) && better ? Math.sign(better * (after - before)) : 0;
}

const GAIN = { "1": "plus", "-1": "minus", "0": "" };
