// The page of a fleet: a filter over the clusters and their findings.
(() => {
  for (const table of document.querySelectorAll("table[data-filtered]")) {
    const name = table.dataset.filtered;
    const rows = rowsOf(table);
    const [shown, all] = [$(`${name}-shown`), $(`${name}-all`)];
    let limit = 100;
    const apply = () => {
      const words = wordsOfFilter();
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
    sortable(table, rows, apply);
    apply();
  }
})();
