"use strict";
(function () {
  function key(cell) {
    var value = cell.getAttribute("data-value");
    return value === null ? cell.textContent.trim() : value;
  }
  function sort(table, place, descending) {
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows);
    rows.sort(function (a, b) {
      var x = key(a.cells[place]), y = key(b.cells[place]);
      var p = Number(x), q = Number(y);
      var order = x !== "" && y !== "" && isFinite(p) && isFinite(q) ? p - q : x.localeCompare(y);
      return descending ? -order : order;
    });
    rows.forEach(function (row) { body.appendChild(row); });
  }
  document.querySelectorAll("table[data-sortable] th button").forEach(function (button) {
    button.addEventListener("click", function () {
      var head = button.closest("th"), table = head.closest("table");
      var descending = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("thead th").forEach(function (th) { th.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(table, head.cellIndex, descending);
    });
  });
  var table = document.getElementById("suspects");
  if (!table) { return; }
  var find = document.getElementById("find"), given = document.getElementById("given");
  var suggested = document.getElementById("suggested"), least = document.getElementById("least");
  var shown = document.getElementById("shown");
  function rows() { return Array.prototype.slice.call(table.tBodies[0].rows); }
  function filter() {
    var text = find.value.trim().toLowerCase(), count = 0;
    var bound = Number(least.value) / 100;
    rows().forEach(function (row) {
      var fits = row.textContent.toLowerCase().indexOf(text) >= 0 &&
        (given.value === "" || row.getAttribute("data-given") === given.value.slice(1)) &&
        (suggested.value === "" || row.getAttribute("data-suggested") === suggested.value.slice(1)) &&
        !(Number(row.getAttribute("data-p")) < bound);
      row.hidden = !fits;
      count += fits ? 1 : 0;
    });
    shown.textContent = count + " of " + rows().length + " labels shown";
  }
  [find, given, suggested, least].forEach(function (control) { control.addEventListener("input", filter); });
  function cell(text) {
    if (/^[=+\-@\t\r]/.test(text)) { text = "'" + text; }
    return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  }
  document.getElementById("export").addEventListener("click", function () {
    var names = ["id", "annotator", "given", "suggested", "p", "ask", "gold"];
    var lines = [["id", "annotator", "given", "suggested", "p_wrong", "ask", "gold"].join(",")];
    rows().forEach(function (row) {
      if (row.hidden) { return; }
      lines.push(names.map(function (name) { return cell(row.getAttribute("data-" + name) || ""); }).join(","));
    });
    var url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv;charset=utf-8" }));
    var link = document.createElement("a");
    link.href = url;
    link.download = "relabel.csv";
    document.body.appendChild(link);
    link.click();
    link.remove();
    setTimeout(function () { URL.revokeObjectURL(url); }, 1000);
  });
  filter();
})();
