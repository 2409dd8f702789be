"use strict";
// Finds the parts of all pages that hold every word. The index is a script, which a page opened from a file may load; it is loaded once a reader needs it.
(() => {
  const MAX_SHOWN = 30;
  const BEFORE = 60; // letters of an excerpt before the first word
  const LETTERS = 220;
  const PAST = /^docs\/(log|decisions)/;
  const root = new URL(".", document.currentScript.src);
  const box = document.querySelector("search");
  const [input, status, list] = ["input", ".shown", ".found"].map((part) => box.querySelector(part));
  let loading = null;

  const load = () => (loading ??= new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = new URL("search-index.js", root);
    script.onload = () => resolve(unpack(PARTS).then((parts) => parts.map(withLowerCase)));
    script.onerror = () => { status.textContent = "search-index.js is missing"; };
    document.head.append(script);
  }));

  function withLowerCase([address, page, heading, text]) {
    const title = ` ${heading || page} `.toLowerCase();
    return { address, page, heading, text, title, low: `${title} ${page} ${text}`.toLowerCase() };
  }

  // Words of the title weigh most; then all words in a row; then one that begins as asked for. What was tried and decided once comes after what holds.
  function score(part, words) {
    if (!words.every((word) => part.low.includes(word))) return 0;
    return (PAST.test(part.address) ? 0.25 : 1) * words.reduce((sum, word) => sum + 4 * part.title.includes(word) + part.low.includes(` ${word}`), 1 + 3 * part.low.includes(words.join(" ")));
  }

  function excerpt(text, word) {
    const from = Math.max(0, text.toLowerCase().indexOf(word) - BEFORE);
    return `${from ? "… " : ""}${text.slice(from, from + LETTERS)}${text.length > from + LETTERS ? " …" : ""}`;
  }

  function item(part, word) {
    const [entry, link, text] = ["li", "a", "p"].map((tag) => document.createElement(tag));
    link.href = new URL(part.address, root);
    link.textContent = part.heading ? `${part.page} · ${part.heading}` : part.page;
    text.textContent = excerpt(part.text, word);
    entry.append(link, text);
    return entry;
  }

  async function update() {
    const asked = input.value;
    const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
    const parts = words.length ? await load() : [];
    if (asked !== input.value) return; // more was typed meanwhile
    const scored = parts.map((part) => [score(part, words), part]).filter(([points]) => points);
    scored.sort(([a], [b]) => b - a);
    list.replaceChildren(...scored.slice(0, MAX_SHOWN).map(([, part]) => item(part, words[0])));
    const num = scored.length > MAX_SHOWN ? `first ${MAX_SHOWN} of ${scored.length}` : scored.length;
    status.textContent = words.length ? `${num} found` : "";
  }

  // The arrow keys move between field and links, Enter follows the first link, Escape ends the search.
  function onKey(event) {
    const stops = [input, ...list.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) stops[stops.indexOf(document.activeElement) + step]?.focus();
    else if (event.key === "Escape") clear();
    else if (event.key !== "Enter" || document.activeElement !== input) return;
    else stops[1]?.click();
    event.preventDefault();
  }

  function clear() {
    if (list.contains(document.activeElement)) input.focus();
    input.value = "";
    update();
  }

  input.addEventListener("focus", load);
  input.addEventListener("input", update);
  box.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", clear); // a place on this page
  box.hidden = false;
})();
