// One turn as a card: what the seat saw, what it wrote, what it got for it.

function largestAdvantage(episode) {
  const sizes = episode.seats.flatMap((seat) => seat.turns.map((turn) => (finite(turn.advantage) ? Math.abs(turn.advantage) : 0)));
  return sizes.reduce((a, b) => Math.max(a, b), 0);
}

// Lines that stood in the same place of the message before are dimmed: rules repeat, the position is new.
function messageText(content, before) {
  const lines = visible(content).split("\n");
  const old = before === undefined ? [] : visible(before).split("\n");
  let same = 0;
  while (same < lines.length - 1 && lines[same] === old[same]) same++;
  const pre = el("pre", { tabindex: lines.length > 18 || String(content).length > 2500 ? 0 : null });
  if (same) pre.append(el("span", { class: "again" }, lines.slice(0, same).join("\n") + "\n"));
  pre.append(lines.slice(same).join("\n"));
  return pre;
}

function message(entry, before) {
  const role = String(entry.role ?? "?");
  const kind = ["user", "assistant", "system"].includes(role) ? role : "";
  const content = typeof entry.content === "string" ? entry.content : JSON.stringify(entry.content ?? null);
  return el("div", { class: `message ${kind}` }, el("span", {}, visible(role)), messageText(content, before));
}

function saw(seat, index) {
  const turn = seat.turns[index];
  const box = el("details", { class: "saw", open: true }, el("summary", {}, "saw"));
  if (turn.kept) {
    const before = el("details", { class: "before" }, el("summary", {}, `${count(turn.kept, "message")} as before`));
    before.addEventListener("toggle", () => {
      if (before.open && before.children.length === 1) before.append(...observation(seat, index).slice(0, turn.kept).map((entry) => message(entry)));
    });
    box.append(before);
  }
  const previous = index && !turn.kept && turn.messages.length === 1 ? seat.turns[index - 1].messages[0]?.content : undefined;
  box.append(...turn.messages.map((entry) => message(entry, previous)));
  if (!turn.messages.length && !turn.kept) box.append(el("span", { class: "soft" }, "nothing"));
  const last = turn.messages.at(-1)?.content;
  const drawn = typeof last === "string" && last.length < 20000 ? board(last, turn.action) : null;
  if (drawn) box.append(drawn);
  return box;
}

function did(turn, facts) {
  const tokens = turn.tokens ? ` · ${count(turn.tokens.length, "token")}` : "";
  const prompt = finite(turn.prompt) ? ` after a prompt of ${turn.prompt.toLocaleString("en")}` : "";
  const box = el("div", { class: "did" }, el("span", {}, `wrote${tokens}${prompt}`), strip(turn, facts));
  if (turn.tokens && turn.texts && !turn.texts.join("").startsWith(turn.action)) {
    box.append(el("span", {}, "the environment got"), el("pre", {}, visible(turn.action)));
  }
  if (turn.legal) {
    const taken = (action) => (turn.action.includes(action) ? "taken" : "");
    box.append(el("details", { class: "legal", open: turn.legal.length <= 12 }, el("summary", {}, count(turn.legal.length, "legal action")), ...turn.legal.map((action) => chip(action, taken(action)))));
  }
  return box;
}

function cardHeader(row, turn, facts, index, place) {
  const parts = [el("b", {}, visible(facts.agent)), el("span", { class: "soft" }, `${facts.learner ? `${visible(facts.learner)} · ` : ""}turn ${index + 1}${place ? ` · ${place}` : ""}`)];
  parts.push(el("span", {}, "reward ", amount(turn.reward)));
  if ("advantage" in turn) parts.push(el("span", {}, "advantage ", amount(turn.advantage)));
  if ("exact" in turn) {
    const [before, after] = turn.exact;
    parts.push(el("span", { class: "exact" }, `exact value ${number(before)} \u2192 ${number(after)} (`, amount(after - before), ")"));
  }
  if ("version" in turn) parts.push(el("span", { class: "soft" }, `v${visible(turn.version)}`));
  if (!row.measured) parts.push(chip(trainedText(facts), facts.trained ? "good" : ""));
  if (turn.finish && turn.finish !== "stop") parts.push(chip(`finish: ${turn.finish}`, "odd"));
  return el("header", {}, ...parts);
}

// `place` is the turn's number in the order of play, where the log has that order.
function card(view, seatIndex, index, place) {
  const { row, episode, largest } = view;
  const facts = row.seats[seatIndex];
  const turn = episode.seats[seatIndex].turns[index];
  const kinds = [advantageClass(turn.advantage, largest), versionClass(turn.version, row.version), facts.trained ? "yes" : "no"];
  const box = el("article", {
    class: `turn ${kinds.join(" ")}`, id: `turn-${seatIndex}-${index}`, tabindex: -1,
    "aria-label": `${visible(facts.agent)}, turn ${index + 1} of ${episode.seats[seatIndex].turns.length}`,
  });
  box.fill = () => {
    box.fill = null;
    box.classList.remove("far");
    box.append(cardHeader(row, turn, facts, index, place), saw(episode.seats[seatIndex], index), did(turn, facts));
  };
  if (row.tokens <= EAGER) box.fill();
  else {
    box.classList.add("far");
    near.observe(box);
  }
  return box;
}

const EAGER = 20000; // tokens of an episode; above that, cards are filled when they come near
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    target.fill?.();
  }
}, { rootMargin: "800px", scrollMargin: "800px" });
