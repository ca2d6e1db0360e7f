// A click on a column's head sorts the table by it; another turns the order round.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const row = head.parentElement;
    const column = [...row.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = head.closest("table").tBodies[0];
    const key = (line) => {
      const cell = line.cells[column];
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    };
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
    const rows = [...body.rows].sort((a, b) => compare(key(a), key(b)) * (down ? -1 : 1));
    body.append(...rows);
  });
}
