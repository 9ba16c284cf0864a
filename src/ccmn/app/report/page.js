// Sorting of tables and a filter for label issues. Without this script, the page shows everything in its given order.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const [head, ...rows] = table.rows;
  [...head.cells].forEach((cell, column) => {
    if (!cell.textContent) return;
    const button = document.createElement("button");
    button.append(...cell.childNodes);
    cell.append(button);
    const value = (row) => row.cells[column].textContent.trim();
    button.addEventListener("click", () => {
      const ascending = cell.getAttribute("aria-sort") !== "ascending";
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const sign = ascending ? 1 : -1;
      rows.sort((a, b) => sign * value(a).localeCompare(value(b), undefined, { numeric: true }));
      head.after(...rows);
    });
  });
}
const cards = [...document.querySelectorAll(".card[data-labels]")];
const labels = new Map(cards.map((card) => [card, JSON.parse(card.dataset.labels)]));
const names = [...new Set([...labels.values()].flat())].sort();
if (names.length > 1) {
  const label = document.createElement("label"), select = document.createElement("select");
  for (const name of ["all labels", ...names]) select.add(new Option(name));
  label.append("Show ", select);
  label.className = "filter";
  document.querySelector(".cards").before(label);
  select.addEventListener("change", () => {
    for (const card of cards) card.hidden = select.selectedIndex > 0 && !labels.get(card).includes(select.value);
  });
}
