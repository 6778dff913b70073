// The chosen lines side by side: their numbers, and the settings that differ.

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

// A small curve of a run's main number, on its own scale.
function spark(line, width = 90, height = 22) {
  if (line.curve.length < 2) return "";
  const [low, high] = [Math.min(...line.curve), Math.max(...line.curve)];
  const at = (value, k) => `${(2 + ((width - 4) * k) / (line.curve.length - 1)).toFixed(1)},${(height - 3 - ((height - 6) * (value - low)) / (high - low || 1)).toFixed(1)}`;
  const told = `over the steps: from ${number(line.curve[0])} to ${number(line.curve.at(-1))}`;
  return svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told }, svg("title", {}, told), svg("polyline", { points: line.curve.map(at).join(" ") }));
}

const nameOf = (line) => (line.kind === "run" ? line.name : [line.name, [line.policy, line.opponent].filter(Boolean).join(" against ")].filter(Boolean).join(": "));
const pageOf = (line, page) => `run/${encodeURIComponent(line.id)}/${page}`;
const fileOf = (line, page) => (line.id === "~" ? "" : `${line.id.split("/").map(encodeURIComponent).join("/")}/`) + page;

function linksOf(line) {
  const links = [];
  if (line.episodes && (live || line.view)) links.push(el("a", { href: live ? pageOf(line, "") : fileOf(line, "view.html") }, "episodes"));
  if (line.report) links.push(el("a", { href: live ? pageOf(line, "report") : fileOf(line, "report.html") }, "report"));
  return links;
}

// Whether a line has the best number within its environment; numbers of different games are not comparable.
function isBest(line, lines, { key, better }) {
  const values = lines.filter(({ env }) => env === line.env).map(({ numbers }) => numbers[key]).filter(finite);
  return better !== 0 && values.length > 1 && line.numbers[key] === Math[better > 0 ? "max" : "min"](...values) && values.some((value) => value !== values[0]);
}

function numberCell(line, column, lines) {
  const value = line.numbers[column.key];
  const kinds = [isBest(line, lines, column) ? "best" : "", GAIN[gainOf(line, column)]];
  const node = el("td", { class: "n" }, el("span", { class: kinds.join(" ") }, cellText(column.key, value)));
  const ends = line.ends[column.key];
  if (ends && finite(value)) node.append(el("span", { class: "soft ends" }, ` ${number(ends[0])} \u2026 ${number(ends[1])}`));
  if (finite(line.before[column.key])) node.append(el("span", { class: "was soft" }, `was ${cellText(column.key, line.before[column.key])}`));
  return node;
}

function drawComparison() {
  const lines = found.lines.filter((line) => state.chosen.has(keyOf(line)));
  const box = byId("comparison");
  box.hidden = lines.length === 0;
  if (!lines.length) return box.replaceChildren();
  const columns = found.columns.filter(({ key }) => lines.some((line) => key in line.numbers));
  const settings = [...new Set(lines.flatMap((line) => Object.keys(line.settings)))].sort().filter((name) => new Set(lines.map((line) => line.settings[name])).size > 1 || lines.length === 1);
  const head = el("tr", {}, el("th", {}), ...lines.map((line) => el("th", { scope: "col" }, visible(nameOf(line)), el("button", { type: "button", class: "off", title: "Take it out", "aria-label": visible(`Take ${nameOf(line)} out`), onclick: () => choose(line, false) }, "\u00d7"))));
  const row = (name, ...cells) => el("tr", {}, el("th", { scope: "row" }, visible(name)), ...cells);
  const rows = [
    row("environment", ...lines.map((line) => el("td", {}, visible(line.env)))),
    ...columns.map((column) => row(column.name, ...lines.map((line) => numberCell(line, column, lines)))),
    ...(lines.some((line) => line.verdict) ? [row("verdict", ...lines.map((line) => el("td", { class: "words" }, visible(line.verdict))))] : []),
    ...settings.map((name) => row(name, ...lines.map((line) => el("td", { class: "words mono" }, visible(line.kind === "run" ? line.settings[name] ?? "none" : ""))))),
  ];
  const runs = lines.filter((line) => line.kind === "run");
  const query = runs.map((line) => `run=${encodeURIComponent(line.id)}`).join("&");
  const curves = runs.length < 2 ? null : live ? el("a", { href: `compare?${query}` }, "Curves of these runs in one figure each") : el("span", { class: "soft" }, "Curves of these runs side by side: ", el("code", {}, visible(`legos view ${runs.map((line) => `${found.folder}/${line.id}`).join(" ")}`)));
  box.replaceChildren(
    el("div", { class: "bar" }, el("h2", {}, lines.length > 1 ? `${lines.length} compared` : "Chosen"), curves ?? "", el("button", { type: "button", onclick: () => { state.chosen.clear(); draw(); } }, "Close")),
    el("div", { class: "scroll" }, el("table", { class: "compared" }, el("thead", {}, head), el("tbody", {}, ...rows))),
    el("p", { class: "soft" }, lines.length > 1 ? "Bold: the best number of the same environment. Green or red: better or worse than before training. " : "Choose another line to compare. ", settings.length ? "Below the numbers: settings that differ within the folder." : ""));
}
