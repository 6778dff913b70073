// Tokens: coloured by class, explained in a tooltip, navigated with the arrow keys.

const BOUNDS = [0.02, 0.1, 0.3, 0.6, 0.9];

function probabilityClass(logprob) {
  if (!finite(logprob)) return "px";
  const p = Math.exp(logprob);
  const at = BOUNDS.findIndex((bound) => p < bound);
  return `p${at < 0 ? BOUNDS.length : at}`;
}

function advantageClass(advantage, largest) {
  if (!finite(advantage)) return "ax";
  const size = largest > 0 ? Math.ceil((3 * Math.abs(advantage)) / largest - 1e-9) : 0;
  return size === 0 ? "a0" : `a${advantage > 0 ? "p" : "m"}${Math.min(3, size)}`;
}

function versionClass(version, now) {
  if (!finite(version) || !finite(now)) return "vx";
  return `v${Math.max(0, Math.min(2, now - version))}`;
}

const trainedText = (facts) => (facts.trained ? "trained" : `not trained: ${visible(facts.why)}`);

function tokenTip(turn, facts, index) {
  const logprob = turn.logprobs?.[index];
  const lines = [`${JSON.stringify(visible(turn.texts?.[index] ?? ""))}  id ${visible(turn.tokens[index])}`];
  lines.push(finite(logprob) ? `probability ${number(Math.exp(logprob))} (log ${number(logprob)})` : `probability unknown${logprob ? ` (log ${visible(logprob)})` : ""}`);
  lines.push("advantage" in turn ? `advantage ${signed(turn.advantage)}` : "no advantage given");
  lines.push("version" in turn ? `policy version ${visible(turn.version)}` : "policy version not recorded");
  lines.push(trainedText(facts));
  return lines.join("\n");
}

function tokenText(text) {
  const parts = visible(text).split("\n");
  const nodes = [];
  parts.forEach((part, index) => {
    if (index) nodes.push(el("span", { class: "nl" }), "\n");
    if (part) nodes.push(part);
  });
  return nodes;
}

// The strip of a turn. A turn without token texts shows its ids; one without tokens shows its action.
function strip(turn, facts) {
  const named = `What ${visible(facts.agent)} wrote`;
  if (!turn.tokens) return el("div", { class: "tokens", role: "group", "aria-label": named }, visible(turn.action));
  const many = turn.tokens.length;
  const box = el("div", { class: "tokens", role: "group", tabindex: 0, "aria-label": `${named}, ${count(many, "token")}; arrow keys walk them` });
  for (let index = 0; index < many; index++) {
    const text = turn.texts?.[index] ?? `[${turn.tokens[index]}]`;
    box.append(el("span", { class: `tok ${probabilityClass(turn.logprobs?.[index])}`, "data-k": index }, ...tokenText(text)));
  }
  let now = -1;
  const point = (index, spoken) => {
    box.children[now]?.classList.remove("now");
    now = index;
    const token = box.children[now];
    if (!token) return hideTip();
    const text = tokenTip(turn, facts, now);
    showTip(text, token.getClientRects()[0] ?? token.getBoundingClientRect());
    if (spoken) {
      token.classList.add("now");
      token.scrollIntoView({ block: "nearest" });
      byId("spoken").textContent = text;
    }
  };
  const indexAt = (event) => Number(event.target.closest?.(".tok")?.dataset.k ?? -1);
  box.addEventListener("pointerover", (event) => point(indexAt(event), false));
  box.addEventListener("pointerleave", () => point(-1, false));
  box.addEventListener("click", (event) => point(indexAt(event), true));
  box.addEventListener("blur", () => point(-1, false));
  box.addEventListener("keydown", (event) => {
    const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: many - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    point(Math.max(0, Math.min(many - 1, to)), true);
  });
  return box;
}

function showTip(text, near) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const above = near.top - height - 8;
  tip.style.left = `${Math.max(6, Math.min(near.left, innerWidth - width - 6))}px`;
  tip.style.top = `${above >= 4 ? above : near.bottom + 8}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

const MODES = {
  probability: ["probability", [["p0", "< 2 %"], ["p1", "< 10 %"], ["p2", "< 30 %"], ["p3", "< 60 %"], ["p4", "< 90 %"], ["p5", "\u2265 90 %"], ["px", "not known"]]],
  advantage: ["advantage", [["am3", "most negative"], ["am1", "negative"], ["a0", "zero"], ["ap1", "positive"], ["ap3", "most positive"], ["ax", "none given"]]],
  version: ["policy version", [["v0", "the newest weights"], ["v1", "one version old"], ["v2", "older"], ["vx", "not recorded"]]],
  trained: ["trained or not", [["yes", "trained"], ["no", "not trained (the tooltip says why)"]]],
};

function legend(mode) {
  const [name, entries] = MODES[mode];
  return el("div", { class: "legend", "aria-label": `Colours: ${name}` }, `Token colour, ${name}:`, ...entries.map(([kind, label]) => el("span", { class: `tok ${kind}` }, label)));
}
