"use strict";
// The beginning of a page's script. Without scripts, a page shows tables. Texts from clusters are set as text only, never as HTML.
document.documentElement.classList.add("has-script");
const $ = (id) => document.getElementById(id);
// Formats the numbers that only IPv6 pools have as powers, as in the table of pools.
const raised = (power) => [...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
const number = (value) => {
  if (value < 1e8) return Number(value).toLocaleString("en");
  if (Number.isInteger(Math.log2(value))) return `2${raised(Math.log2(value))}`;
  const power = Math.floor(Math.log10(value));
  return `${(value / 10 ** power).toFixed(2)}×10${raised(power)}`;
};

// Heads sort the rows of a table, which `apply` shows and hides again.
const sortable = (table, rows, apply) => {
  // Compares numbers in texts by value: 10.0.0.9 comes before 10.0.0.10.
  const { compare } = new Intl.Collator("en", { numeric: true });
  const severities = ["critical", "error", "warning", "info"];
  const key = (text) => severities.includes(text) ? String(severities.indexOf(text)) : text.replaceAll(",", "");
  let sorted = "";
  table.tHead.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.title = "sort";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = sorted === `${column}+`;
      sorted = down ? `${column}-` : `${column}+`;
      for (const item of rows) item.key = key(item.row.cells[column].textContent);
      rows.sort((a, b) => compare(a.key, b.key) * (down ? -1 : 1) || a.order - b.order);
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.tBodies[0].append(...rows.map((item) => item.row));
      apply();
    });
  });
};

// A link to a code opens its explanation, which is folded.
const unfold = () => {
  const target = $(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", unfold);
unfold();

// The filter shows the rows that have all its words and the severity: the first hundred, or all of them.
for (const table of document.querySelectorAll("table[data-filtered]")) {
  const rows = [...table.tBodies[0].rows].map((row, order) => ({ row, order, text: row.textContent.toLowerCase() }));
  const [shown, all] = ["shown", "all"].map((part) => $(`${table.dataset.filtered}-${part}`));
  let limit = 100;
  const apply = () => {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const severity = $("severity").value;
    let count = 0;
    for (const { row, text } of rows) {
      const fits = (!severity || row.querySelector(`:scope > .${severity}`)) && words.every((word) => text.includes(word));
      count += fits ? 1 : 0;
      row.hidden = !fits;
      row.classList.toggle("later", count > limit);
    }
    shown.textContent = `${number(Math.min(count, limit))} of ${number(count)} shown`
      + (count < rows.length ? `, ${number(rows.length)} in all` : "");
    all.hidden = count <= limit;
    all.textContent = `Show all ${number(count)}`;
  };
  for (const id of ["filter", "severity"]) $(id).addEventListener("input", apply);
  all.addEventListener("click", () => {
    limit = Infinity;
    apply();
  });
  sortable(table, rows, apply);
  apply();
}

// A name of a cluster, and the number of a kind, filter the lists.
for (const link of document.querySelectorAll("a[data-filter]")) {
  link.addEventListener("click", () => {
    $("filter").value = link.dataset.filter;
    $("filter").dispatchEvent(new Event("input"));
  });
}

