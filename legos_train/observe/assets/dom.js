// Builds elements from plain values. Text is only inserted as text nodes; the page's policy forbids HTML from strings.

const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Control characters and changes of writing direction could hide or reorder what a model wrote.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;

function visible(text) {
  return String(text).replace(UNSEEN, (c) => `\u27e8U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

const finite = (value) => typeof value === "number" && Number.isFinite(value);

function number(value, digits = 3) {
  if (!finite(value)) return value === null || value === undefined ? "\u2013" : visible(value);
  const short = Number(value.toPrecision(digits));
  return Object.is(short, -0) ? "0" : String(short).replace("-", "\u2212");
}

const signed = (value, digits = 3) => (finite(value) && value > 0 ? "+" : "") + number(value, digits);

function amount(value, digits = 3) {
  return el("span", { class: !finite(value) || value === 0 ? "soft" : value > 0 ? "plus" : "minus" }, signed(value, digits));
}

const OUTCOMES = { win: "good", loss: "bad", invalid: "bad", draw: "odd", truncated: "odd" };
const chip = (text, kind = "") => el("span", { class: `chip ${kind}`, title: visible(text) }, visible(text));
const spaced = (outcome) => outcome.replaceAll("_", " ");
const outcomeChip = (outcome) => (outcome === null ? null : chip(spaced(outcome), OUTCOMES[outcome] ?? ""));
const count = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

function option(value, label, chosen) {
  const node = el("option", { value }, visible(label));
  node.selected = chosen;
  return node;
}

function nextTheme() {
  const root = document.documentElement;
  const next = { system: "light", light: "dark", dark: "system" }[root.dataset.theme ?? "system"];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  byId("theme").textContent = `Theme: ${next}`;
}
