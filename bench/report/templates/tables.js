"use strict";
// Sorts, filters and downloads tables. The page shows only some rows at a time; the others stay as data.
(() => {
  const PAGE_ROWS = 100;
  const WIDE_CHARACTERS = 44;
  const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const PLAIN_NUMBER = /^[-+]?\d[\d.,]*(e[-+]?\d+)?( %)?$/;

  const readCell = (cell) => ({
    text: cell.dataset.text ?? cell.textContent,
    key: "key" in cell.dataset ? Number(cell.dataset.key) : null,
  });

  function readRows(block, table) {
    // a row keeps its element, and with it the links
    const rows = [...table.tBodies[0].rows].map((element) => Object.assign([...element.cells].map(readCell), { element }));
    const holder = block.querySelector("script.rest");
    const rest = holder ? JSON.parse(holder.textContent) : { rows: [], keys: [], tones: {} };
    rest.rows.forEach((texts, i) => {
      const keys = rest.keys[i] || [];
      rows.push(texts.map((text, j) => ({ text, key: keys[j] ?? null })));
    });
    for (const badge of table.querySelectorAll(".badge")) rest.tones[badge.textContent] = badge.classList[1];
    return { rows, tones: rest.tones };
  }

  // A cell sorts by its key; without a key by its leading number in a numeric column, otherwise by its text.
  function sortValue(cell, numeric) {
    if (cell.key !== null) return cell.key;
    if (cell.text === "") return null;
    const number = numeric ? Number.parseFloat(cell.text.replaceAll(",", "")) : NaN;
    return Number.isNaN(number) ? cell.text : number;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return order.compare(a, b);
  }

  // Empty cells come last in both directions; equal cells keep their order.
  function sorted(rows, column, direction, numeric) {
    if (!direction) return rows;
    const keyed = rows.map((row, place) => ({ row, place, value: sortValue(row[column], numeric) }));
    keyed.sort((a, b) => {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.place - b.place;
      return direction * compare(a.value, b.value) || a.place - b.place;
    });
    return keyed.map((entry) => entry.row);
  }

  function filtered(rows, wanted) {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return rows;
    return rows.filter((row) => {
      row.haystack ??= row.map((cell) => cell.text).join("\n").toLowerCase();
      return words.every((word) => word.split("|").some((part) => row.haystack.includes(part)));
    });
  }

  // A spreadsheet would execute a text that starts like a formula.
  function csvField(text) {
    const safe = /^[=+\-@\t\r]/.test(text) && !PLAIN_NUMBER.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function save(name, lines) {
    const address = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  }

  function fillCell(element, cell, column, tones) {
    if (column.numeric) element.className = "number";
    else if (cell.text.length > WIDE_CHARACTERS) element.className = "wide";
    if (!column.badged || !cell.text) {
      element.textContent = cell.text;
      return;
    }
    const badge = document.createElement("span");
    badge.className = `badge ${tones[cell.text] || "plain"}`;
    badge.textContent = cell.text;
    element.append(badge);
  }

  function rowElement(row, columns, tones) {
    const element = document.createElement("tr");
    row.forEach((cell, i) => {
      const box = document.createElement(i ? "td" : "th");
      if (!i) box.scope = "row";
      fillCell(box, cell, columns[i], tones);
      element.append(box);
    });
    return element;
  }

  function headerButtons(table, onSort) {
    [...table.tHead.rows[0].cells].forEach((cell, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = cell.textContent;
      button.addEventListener("click", () => onSort(i));
      cell.replaceChildren(button);
      cell.setAttribute("aria-sort", "none");
    });
  }

  function start(block) {
    const table = block.querySelector("table");
    const [input, download, status, more] = ["input", ".download", ".shown", ".more"].map((part) => block.querySelector(part));
    const headers = [...table.tHead.rows[0].cells];
    const titles = headers.map((cell) => cell.textContent);
    const columns = headers.map((cell) => ({ numeric: cell.classList.contains("number"), badged: cell.classList.contains("badged") }));
    const { rows, tones } = readRows(block, table);
    const state = { column: 0, direction: 0, num: PAGE_ROWS };
    let found = rows;

    function show(first) {
      const added = found.slice(first, state.num).map((row) => (row.element ??= rowElement(row, columns, tones)));
      if (first) table.tBodies[0].append(...added);
      else table.tBodies[0].replaceChildren(...added);
      showStatus();
    }
    function showStatus() {
      const num = Math.min(found.length, state.num).toLocaleString("en");
      const matching = found.length < rows.length ? ` (${rows.length.toLocaleString("en")} without the filter)` : "";
      status.textContent = `${num} of ${found.length.toLocaleString("en")} row${found.length === 1 ? "" : "s"} shown${matching}`;
      if (more) more.hidden = state.num >= found.length;
    }
    function update() {
      state.num = PAGE_ROWS;
      found = sorted(filtered(rows, input.value), state.column, state.direction, columns[state.column].numeric);
      show(0);
    }
    // Repeated clicks sort ascending, then descending, then restore the order of the page.
    function sortBy(column) {
      const next = { 0: 1, 1: -1, "-1": 0 };
      state.direction = column === state.column ? next[state.direction] : 1;
      state.column = column;
      const names = { 0: "none", 1: "ascending", "-1": "descending" };
      headers.forEach((cell, i) => cell.setAttribute("aria-sort", i === column ? names[state.direction] : "none"));
      update();
    }

    headerButtons(table, sortBy);
    input.addEventListener("input", update);
    download.addEventListener("click", () => {
      save(block.dataset.name, [titles, ...found.map((row) => row.map((cell) => cell.text))].map((line) => line.map(csvField).join(",")));
    });
    more?.addEventListener("click", () => {
      const first = state.num;
      state.num += PAGE_ROWS;
      show(first);
    });
    block.querySelector(".left-out")?.remove();
    block.querySelector(".tools").hidden = false;
    showStatus();
  }

  document.querySelectorAll(".table-block").forEach(start);

  // A link to rows filters its target table to these rows.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.rows");
    if (!link) return;
    const input = document.querySelector(link.getAttribute("href"))?.querySelector("input");
    if (!input) return;
    event.preventDefault();
    input.closest("details")?.setAttribute("open", "");
    input.value = link.dataset.filter;
    input.dispatchEvent(new Event("input"));
    input.closest(".table-block").scrollIntoView();
    input.focus();
  });

  // Paper cannot be unfolded: print every section, then fold again those that were folded.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.section:not([open])")];
    for (const section of opened) section.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const section of opened) section.open = false;
  });
})();
