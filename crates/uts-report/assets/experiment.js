// Sorts and filters tables, zooms into series over time, and saves pictures and their data. Everything is in the
// element #data or in the page itself; nothing is loaded.
(function () {
  "use strict";
  const store = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const MARK_SIZE = { dots: 1, ring: 2.6, cross: 3 };
  const PANEL_HEIGHT = { 1: 320, 2: 240, 3: 200 };
  const PNG_SCALE = 3;

  function save(name, url) {
    const link = document.createElement("a");
    link.download = store.name + "-" + name;
    link.href = url;
    link.click();
  }

  const text = (type, content) => "data:" + type + ";charset=utf-8," + encodeURIComponent(content);

  // The colours of paper are attributes of the elements, so that the picture stands alone.
  function svgOf(id) {
    const svg = document.querySelector("#" + id + " .picture svg");
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(svg);
  }

  function pngOf(id) {
    const svg = document.querySelector("#" + id + " .picture svg");
    const box = svg.viewBox.baseVal, image = new Image();
    return new Promise((resolve, reject) => {
      image.onerror = () => reject(new Error("the picture " + id + " cannot be drawn"));
      image.onload = () => {
        const canvas = document.createElement("canvas");
        canvas.width = box.width * PNG_SCALE;
        canvas.height = box.height * PNG_SCALE;
        const context = canvas.getContext("2d");
        context.fillStyle = "#ffffff";
        context.fillRect(0, 0, canvas.width, canvas.height);
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        resolve(canvas.toDataURL("image/png"));
      };
      image.src = text("image/svg+xml", svgOf(id));
    });
  }

  const quoted = (field) => (/[",\n]/.test(field) ? '"' + field.replace(/"/g, '""') + '"' : field);

  // Of a table the values that it was drawn from; of series over time the points of the closer look.
  function csvOf(id) {
    if (store.csv[id]) return store.csv[id];
    const lines = ["quantity,series,t_s,value"];
    for (const panel of store.zoom[id].panels)
      for (const series of panel.series)
        series.t.forEach((t, i) => lines.push([quoted(panel.label), quoted(series.name), t, series.v[i]].join(",")));
    return lines.join("\n") + "\n";
  }

  const color = (ink) => getComputedStyle(root).getPropertyValue("--" + ink).trim();
  const font = (px) => px + "px " + getComputedStyle(document.body).fontFamily;

  function drawMarks(u, index, series) {
    const { ctx } = u, ratio = uPlot.pxRatio, { left, top, width, height } = u.bbox;
    const times = u.data[0], values = u.data[index], size = MARK_SIZE[series.style] * ratio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = color(series.ink);
    ctx.lineWidth = ratio;
    ctx.beginPath();
    for (let i = 0; i < times.length; i++) {
      if (values[i] == null) continue;
      const x = u.valToPos(times[i], "x", true), y = u.valToPos(values[i], "y", true);
      if (x < left - 9 || x > left + width + 9) continue;
      if (series.style === "dots") ctx.rect(x - size, y - size, 2 * size, 2 * size);
      else if (series.style === "ring") { ctx.moveTo(x + size, y); ctx.arc(x, y, size, 0, 2 * Math.PI); }
      else { ctx.moveTo(x - size, y - size); ctx.lineTo(x + size, y + size); ctx.moveTo(x - size, y + size); ctx.lineTo(x + size, y - size); }
    }
    if (series.style === "dots") ctx.fill(); else ctx.stroke();
    ctx.restore();
  }

  function drawExchanges(u, marks) {
    const { ctx } = u, ratio = uPlot.pxRatio, { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.strokeStyle = color("mark");
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    for (const t of marks) {
      const x = u.valToPos(t, "x", true);
      if (x < left || x > left + width) continue;
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
    }
    ctx.stroke();
    ctx.restore();
  }

  const isMark = (series) => series.style in MARK_SIZE;

  function options(series) {
    const stroke = color(series.ink);
    const value = (u, v) => (v == null ? "–" : String(Number(v.toPrecision(4))));
    const line = { label: series.name, stroke, value, width: 1.5, dash: series.dash, points: { show: false }, spanGaps: true };
    if (series.style === "step") line.paths = uPlot.paths.stepped({ align: 1 });
    if (isMark(series)) line.paths = () => null;
    return line;
  }

  function axis(label, isSide) {
    return {
      label, stroke: color("ink"), font: font(12), labelFont: font(12.5), labelSize: isSide ? 24 : 22, size: isSide ? 56 : 32,
      grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("rule"), width: 1, size: 5 },
    };
  }

  // One plot for each panel, below each other, that zoom together.
  function zoom(id) {
    const picture = document.querySelector("#" + id + " .picture"), { panels, marks } = store.zoom[id];
    const open = picture.querySelector(".zoomed");
    if (open) {
      open.plots.forEach((plot) => plot.destroy());
      open.remove();
      picture.querySelector("svg").style.display = "";
      return false;
    }
    const into = document.createElement("div"), plots = [];
    into.className = "zoomed";
    into.plots = plots;
    picture.append(into);
    picture.querySelector("svg").style.display = "none";
    let busy = false;
    const follow = (u, key) => {
      if (key !== "x" || busy) return;
      busy = true;
      const { min, max } = u.scales.x;
      plots.filter((p) => p !== u && (p.scales.x.min !== min || p.scales.x.max !== max)).forEach((p) => p.setScale("x", { min, max }));
      busy = false;
    };
    const times = panels.flatMap((p) => p.series.flatMap((s) => [s.t[0], s.t[s.t.length - 1]]));
    const whole = { min: Math.min(...times), max: Math.max(...times) };
    panels.forEach((panel, i) => {
      const isLast = i + 1 === panels.length;
      plots.push(new uPlot({
        width: picture.clientWidth, height: PANEL_HEIGHT[panels.length] || 205, padding: [8, 12, 0, 0],
        cursor: { sync: { key: id, setSeries: false }, drag: { x: true, y: false }, points: { size: 6 } },
        scales: { x: { time: false, range: (u, min, max) => (min == null || min === max ? [whole.min, whole.max] : [min, max]) } },
        axes: [axis(isLast ? "Time since the run began (s)" : "", false), axis(panel.label, true)],
        series: [{ label: "Time", value: (u, v) => (v == null ? "–" : v.toFixed(4) + " s") }].concat(panel.series.map(options)),
        legend: { markers: { width: 0, fill: (u, n) => color(panel.series[n - 1].ink) } },
        hooks: {
          drawSeries: [(u, n) => panel.series[n - 1] && u.series[n].show && isMark(panel.series[n - 1]) && drawMarks(u, n, panel.series[n - 1])],
          draw: [(u) => drawExchanges(u, marks)],
          setScale: [follow],
        },
      }, uPlot.join(panel.series.map((s) => [s.t, s.v])), into));
    });
    return true;
  }

  // Numbers by value, also behind a sign or before a unit; everything else by its letters. Nothing comes last.
  function sort(header) {
    const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
    const falls = header.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", falls ? "descending" : "ascending");
    const key = (row) => row.cells[column].textContent.replace("−", "-").trim();
    const isEmpty = (k) => k === "" || k === "–";
    const rows = [...body.rows].map((row) => ({ row, key: key(row), number: parseFloat(key(row).replace(/^[^\d-∞]*/, "").replace("∞", "1e999")) }));
    const byNumber = rows.every((r) => isEmpty(r.key) || !Number.isNaN(r.number)) && header.classList.contains("number");
    rows.sort((a, b) => {
      if (isEmpty(a.key) || isEmpty(b.key)) return isEmpty(a.key) - isEmpty(b.key);
      const order = byNumber ? (a.number === b.number ? 0 : a.number - b.number) : a.key.localeCompare(b.key, "en", { numeric: true });
      return falls ? -order : order;
    });
    body.append(...rows.map((r) => r.row));
  }

  function filter(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll("#" + input.dataset.filter + " tbody tr")) {
      const content = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => content.includes(word));
    }
  }

  document.addEventListener("click", (event) => {
    const header = event.target.closest("table.sortable thead th");
    if (header) return sort(header);
    const button = event.target.closest("button");
    if (!button) return;
    const { zoom: zoomed, csv, svg, png } = button.dataset;
    if (zoomed) button.textContent = zoom(zoomed) ? "Whole" : "Zoom";
    if (csv) save(csv + ".csv", text("text/csv", csvOf(csv)));
    if (svg) save(svg + ".svg", text("image/svg+xml", svgOf(svg)));
    if (png) pngOf(png).then((url) => save(png + ".png", url));
  });
  document.addEventListener("input", (event) => event.target.dataset.filter && filter(event.target));
  document.querySelectorAll("table.sortable thead th").forEach((th) => (th.title = "Sort by this column"));
  // A zoomed picture is for the screen; on paper the drawn one is sharper.
  window.addEventListener("beforeprint", () => document.querySelectorAll("button[data-zoom]").forEach((b) => b.textContent === "Whole" && b.click()));
  root.dataset.ready = String(document.querySelectorAll(".figure").length);
  // For tests, which cannot look into a download.
  window.report = { csvOf, svgOf, pngOf, zoom };
})();
