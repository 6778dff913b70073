// Boards in observations, drawn as grids: one square line ("Board: X 2 3 ...") or rows of single characters.

const CELLS = /^\S(?: \S){2,18}$/u;
const LINE = /\bBoard: (\S(?: \S){8,})$/mu;
const FREE = new Set([".", "_", "-", "\u00b7"]);

// Rows of cells, or null. With several boards the last one: earlier ones are history.
function boardIn(text) {
  const flat = LINE.exec(text)?.[1].split(" ");
  const side = Math.sqrt(flat?.length ?? 0);
  if (flat && Number.isInteger(side)) return Array.from({ length: side }, (_, row) => flat.slice(row * side, (row + 1) * side));
  let found = null;
  let rows = [];
  for (const line of [...text.split("\n"), ""]) {
    const cells = CELLS.test(line) ? line.split(" ") : null;
    if (cells && (!rows.length || rows[0].length === cells.length)) rows.push(cells);
    else {
      if (rows.length >= 3) found = rows;
      rows = cells ? [cells] : [];
    }
  }
  return found;
}

// Marks get a colour each in the order they first appear on the board; numbers and free cells stay pale.
function board(text, action) {
  const rows = boardIn(text);
  if (!rows) return null;
  const marks = [...new Set(rows.flat().filter((cell) => !FREE.has(cell) && !/^\d$/.test(cell)))].sort();
  const move = String(action).replace(/^\[|\]$/g, "").trim();
  const cell = (value) => {
    const mark = marks.indexOf(value);
    const kind = mark >= 0 && mark < 4 ? `mark${mark}` : mark < 0 ? "free" : "";
    return el("td", { class: value === move && mark < 0 ? `${kind} moved` : kind }, FREE.has(value) ? "\u00b7" : visible(value));
  };
  return el("table", { class: "board", "aria-label": "the board" }, el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))));
}
