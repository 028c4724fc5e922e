"use strict";
// The page works without this script, as tables. It adds a filter and sorting. Texts of the clusters are set as text only.
(() => {
  document.documentElement.classList.add("has-script");
  const $ = (id) => document.getElementById(id);
  const number = (value) => Number(value).toLocaleString("en");
  // Numbers inside texts by their value: 10.0.0.9 before 10.0.0.10.
  const { compare } = new Intl.Collator("en", { numeric: true });
  const ranks = ["critical", "error", "warning", "info"];

  for (const table of document.querySelectorAll("table[data-filtered]")) {
    const name = table.dataset.filtered;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, order) => ({ row, order, text: row.textContent.toLowerCase() }));
    const [shown, all] = [$(`${name}-shown`), $(`${name}-all`)];
    let limit = 100;
    const apply = () => {
      const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
      const severity = $("severity").value;
      let count = 0;
      for (const { row, text } of rows) {
        const fits = (!severity || (row.dataset.severity || "").split(" ").includes(severity))
          && words.every((word) => text.includes(word));
        count += fits ? 1 : 0;
        row.hidden = !fits || count > limit;
      }
      shown.textContent = `${number(Math.min(count, limit))} of ${number(count)} shown`;
      all.hidden = count <= limit;
    };
    for (const id of ["filter", "severity"]) $(id).addEventListener("input", apply);
    all.addEventListener("click", () => {
      limit = Infinity;
      apply();
    });
    let sorted = "";
    table.tHead.querySelectorAll("th").forEach((head, column) => {
      const button = document.createElement("button");
      button.textContent = head.textContent;
      button.title = "sort";
      head.replaceChildren(button);
      const key = (item) => {
        const text = item.row.cells[column].textContent;
        const rank = ranks.indexOf(text);
        return rank < 0 ? text.replaceAll(",", "") : String(rank);
      };
      button.addEventListener("click", () => {
        const down = sorted === `${column}+`;
        sorted = down ? `${column}-` : `${column}+`;
        for (const item of rows) item.key = key(item);
        rows.sort((a, b) => compare(a.key, b.key) * (down ? -1 : 1) || a.order - b.order);
        table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...rows.map((item) => item.row));
        apply();
      });
    });
    apply();
  }

  // The name of a cluster filters by it.
  for (const link of document.querySelectorAll("#clusters-table a")) {
    link.addEventListener("click", () => {
      $("filter").value = link.textContent;
      $("filter").dispatchEvent(new Event("input"));
    });
  }

  // A code leads to what it means, which is folded.
  const unfold = () => {
    const target = $(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
