"use strict";
// Sorts the table of cases: a click or Enter on a heading, again for the other direction.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const first = [...body.rows];
  const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  const key = (row, column) => {
    const cell = row.cells[column];
    if (!("value" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };

  const sort = (column) => {
    const head = heads[column];
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const sign = up ? 1 : -1;
    const rows = first.map((row) => [key(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // missing values last
      return sign * (typeof a === "number" ? a - b : order.compare(a, b));
    });
    body.append(...rows.map(([, row]) => row));
    body.classList.toggle("grouped", column === 0);
  };

  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sort(column));
  });
}
