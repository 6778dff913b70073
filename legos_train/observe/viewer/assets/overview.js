// The first view: results by player and role, with each count linked to its games; an evaluation's own numbers.

const KINDS = ["win", "draw", "loss", "invalid", "opponent_invalid", "truncated", "unscored"];
const MOST = 80;

function tally(run) {
  const groups = new Map();
  for (const row of rows) {
    if (row.run !== run) continue;
    for (const seat of row.seats) {
      const key = JSON.stringify([row.env, seat.role, seat.player, seat.learner]);
      const group = groups.get(key) ?? { env: row.env, role: seat.role, player: seat.player, learner: seat.learner, games: 0, total: 0, kinds: {} };
      group.games += 1;
      group.total += finite(seat.return) ? seat.return : 0;
      if (seat.outcome !== null) group.kinds[seat.outcome] = (group.kinds[seat.outcome] ?? 0) + 1;
      groups.set(key, group);
    }
  }
  const rank = (group) => (isOurs(group) ? 0 : 1);
  const names = (group) => `${group.env} ${group.role} ${group.player} ${group.learner ?? ""}`;
  return [...groups.values()].sort((a, b) => rank(a) - rank(b) || names(a).localeCompare(names(b), "en", { numeric: true }));
}

function countButton(run, group, outcome, many) {
  if (!many) return el("span", { class: "soft" }, "0");
  const { env, role, player } = group;
  const learner = group.learner ?? "";
  const chosen = { text: "", step: "", trained: "", run: String(run), env, role, player, learner, outcome };
  const says = `${count(many, "game")} of ${learner ? `${learner}, ` : ""}${player} as ${role}${outcome ? `: ${spaced(outcome)}` : ""}`;
  const sort = LOST.has(outcome) ? { sort: "worst" } : {};
  return el("button", { type: "button", title: visible(`List ${says}`), "aria-label": visible(says), onclick: () => filter({ ...chosen, ...sort }, true) }, many.toLocaleString("en"));
}

function numbersTable(heads, lines) {
  const head = el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name))));
  return el("div", { class: "scroll" }, el("table", { class: "seats" }, head, el("tbody", {}, ...lines.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", typeof cell === "string" && cell.length > 16 && !cell.includes("\u2026") ? { class: "long" } : {}, cell)))))));
}

function fared(run) {
  const groups = tally(run);
  const kinds = KINDS.filter((kind) => groups.some((group) => group.kinds[kind]));
  const learners = groups.some((group) => group.learner);
  const lines = groups.slice(0, MOST).map((group) => [
    visible(group.env), visible(group.role), ...(learners ? [visible(group.learner ?? "\u2013")] : []), visible(group.player), countButton(run, group, "", group.games),
    ...kinds.map((kind) => countButton(run, group, kind, group.kinds[kind] ?? 0)), amount(group.games ? group.total / group.games : null),
  ]);
  const table = numbersTable(["environment", "role", ...(learners ? ["learner"] : []), "player", "games", ...kinds.map(spaced), "mean return"], lines);
  return groups.length > MOST ? [table, el("p", { class: "soft" }, `and ${groups.length - MOST} more`)] : [table];
}

const percent = (value) => (finite(value) ? `${number(100 * value)} %` : "\u2013");
const interval = (pair) => (Array.isArray(pair) && pair.every(finite) ? `${signed(pair[0])} \u2026 ${signed(pair[1])}` : "\u2013");

const bounded = (one, exact) => (one === null || typeof one !== "object" ? "\u2013" : exact ? amount(one.estimate) : `${number(one.estimate)} (${interval(one.ci95)})`);
const shares = (played) => (played === null || typeof played !== "object" ? "\u2013" : visible(Object.entries(played).map(([move, share]) => `${move} ${number(share)}`).join("  ")));

function examined(found) {
  const says = found.exact ? "computed exactly" : `from ${count(finite(found.answers) ? found.answers : 0, "answer")}; 95 % intervals in brackets`;
  const seats = found.responder !== null && typeof found.responder === "object" ? Object.entries(found.responder) : [];
  const lines = [["NashConv", bounded(found.nash_conv, found.exact)], ["loss per game", bounded(found.loss_per_game, found.exact)], ...seats.map(([seat, one]) => [visible(`a best responder as ${seat} gets`), bounded(one, found.exact)])];
  const leaks = found.leaks.map((one) => [visible(one.seat), visible(one.view), visible(one.move), number(one.played), number(one.at_most), visible(one.instead), number(one.cost), number(one.asked, 9)]);
  const infosets = found.infosets.map((one) => [visible(one.seat), visible(one.view), shares(one.played), visible(one.exploiter), number(one.asked, 9)]);
  return [
    el("h3", {}, "How exploitable"), el("p", { class: "soft" }, visible(`${found.policy} in ${found.env}, ${says}`)), numbersTable(["", "value"], lines),
    ...(leaks.length ? [el("h3", {}, "Leaks"), numbersTable(["seat", "reads", "plays", "share", "at most", "instead of it", "costs per game", "answers"], leaks)] : []),
    ...(infosets.length ? [el("h3", {}, "Information sets"), numbersTable(["seat", "reads", "plays", "the exploiter plays", "answers"], infosets)] : []),
  ];
}

function evaluated(results) {
  const boxes = [];
  if (results.exploit) boxes.push(...examined(results.exploit));
  if (results.ratings.length) {
    const lines = results.ratings.map((one) => [visible(one.name), number(one.elo, 4), Array.isArray(one.ci95) ? one.ci95.map((v) => number(v, 4)).join(" \u2026 ") : "\u2013", percent(one.score), number(one.games, 9)]);
    boxes.push(el("h3", {}, "Ratings"), numbersTable(["policy", "Elo (Bradley-Terry)", "95 % interval", "score", "games"], lines));
  }
  if (results.rows.length) {
    const kinds = ["success", "win", "draw", "loss", "invalid"].filter((kind) => results.rows.some((one) => finite(one[kind])));
    const lines = results.rows.slice(0, MOST).map((one) => [visible(one.env), visible(one.policy), visible(one.opponent ?? "\u2013"), number(one.games, 9), amount(one.mean), interval(one.ci95), ...kinds.map((kind) => percent(one[kind]))]);
    boxes.push(el("h3", {}, "Results"), numbersTable(["environment", "policy", "opponent", "games", "mean return", "95 % interval", ...kinds], lines));
  }
  return boxes;
}

const SAMPLES = 6;
const LONG = 400;
const cut = (text) => (text.length > LONG ? `${text.slice(0, LONG)} \u2026` : text);

// The newest episode of each of our endings, then others, all with different moves.
function sampleIndexes() {
  const seen = new Set();
  const ends = new Set();
  const [first, more] = [[], []];
  for (let index = rows.length - 1; index >= Math.max(0, rows.length - 200); index--) {
    const { seats, env } = rows[index];
    const moves = JSON.stringify([env, body(index).seats.map(({ turns }) => turns.map(({ action }) => action))]);
    if (seen.has(moves)) continue;
    seen.add(moves);
    const end = `${env} ${(seats.find(isOurs) ?? seats[0]).outcome}`;
    (ends.has(end) ? more : first).push(index);
    ends.add(end);
  }
  return [...first, ...more].slice(0, SAMPLES).sort((a, b) => b - a);
}

function sample(index) {
  const [row, episode] = [rows[index], body(index)];
  const said = episode.order.slice(0, 12).map(([seat, turn]) => el("p", {}, el("b", {}, visible(row.seats[seat].agent)), " ", visible(cut(episode.seats[seat].turns[turn].action.trim()))));
  if (episode.order.length > 12) said.push(el("p", { class: "soft" }, `and ${count(episode.order.length - 12, "turn")} more`));
  const [[seat, turn] = []] = episode.order;
  const told = seat === undefined ? "" : String(episode.seats[seat].turns[turn].messages.at(-1)?.content ?? "");
  const ends = row.seats.map((one) => el("span", {}, visible(`${one.agent}${playedBy(one) ? ` (${playedBy(one)})` : ""} `), amount(one.return), " ", outcomeChip(one.outcome) ?? ""));
  return el("article", { class: "sample" },
    el("header", {}, el("button", { type: "button", onclick: () => goTo(index, null, null) }, visible(`#${row.n} ${row.env}`)), row.measured ? "" : el("span", { class: "soft" }, `step ${visible(row.step)}`), ...ends),
    el("p", { class: "told" }, visible(cut(told))), ...said);
}

function welcome() {
  const parts = header.runs.flatMap((run, index) => [
    el("h3", { title: visible(run.path) }, visible(run.label), el("span", { class: "soft" }, run.report ? " \u00b7 its curves are in report.html next to this page" : "")),
    run.bad ? el("p", { class: "soft" }, `${count(run.bad, "line")} of the log could not be read`) : null,
    ...(run.results ? evaluated(run.results) : []),
    run.results ? el("h3", {}, "By role and player") : null,
    ...fared(index),
  ]);
  byId("main").replaceChildren(
    el("h2", {}, rows.length ? "Choose an episode" : "No episodes"),
    el("p", { class: "soft" }, !rows.length ? "Nothing was played: these numbers are computed." : "\u201cLost games\u201d lists the games lost, the worst first; the button next to a row leads to the mistake that cost most: a red number is the drop in exact value. Buttons with numbers list those games. Press ? for the keys."),
    sampled() ? el("p", { class: "soft" }, `The log has a sample, ${rows.length.toLocaleString("en")} of the ${sampled().toLocaleString("en")} episodes that were played; counts and means are those of the sample.`) : "",
    ...parts.filter(Boolean),
    ...(rows.length ? [el("h3", {}, "Sample episodes"), el("div", { class: "samples" }, ...sampleIndexes().map(sample))] : []));
}
