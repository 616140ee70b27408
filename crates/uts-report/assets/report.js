// Draws the charts of a report. The data is in the element #data; colours are those of the style sheet.
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const PHASE_ROW = 18, MARK_ROW = 19, MARK_RADIUS = 8, MARK_LEVELS = 3;
  const MARKS_LARGE = 250; // more than these are drawn smaller
  const PRINT_WIDTH = 680, PRINT_HEIGHT = 0.78, HEIGHTS = { sequence: 400, detail: 420, throughput: 360 };
  let plots = [], printing = false, width = 0, timer = 0;

  const color = (role) => getComputedStyle(root).getPropertyValue("--" + role).trim();
  const font = (px) => px + "px " + getComputedStyle(document.body).fontFamily;
  const digits = (value) => (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);

  // The value of a series nearest to the cursor, as each series has times of its own.
  function nearest(u, seriesIndex, index) {
    const values = u.data[seriesIndex];
    if (values[index] != null || seriesIndex === 0) return index;
    let left = index, right = index;
    while (left > 0 && values[left] == null) left--;
    while (right < values.length - 1 && values[right] == null) right++;
    if (values[left] == null) return right;
    if (values[right] == null) return left;
    const at = u.data[0];
    return at[index] - at[left] <= at[right] - at[index] ? left : right;
  }

  // Marks are drawn here, as they are neither lines nor round.
  function drawMarks(u, index, chart, style, stroke) {
    const { ctx } = u, ratio = uPlot.pxRatio, times = u.data[0], values = u.data[index];
    const { left, top, width, height } = u.bbox;
    const { min, max } = u.scales.x;
    const seen = times.reduce((n, t, i) => n + (values[i] != null && t >= min && t <= max), 0);
    const crowd = Math.min(1, Math.max(0.3, Math.sqrt(MARKS_LARGE / seen)));
    const dot = chart.excerpt ? 1.1 : 0.8;
    const size = { dots: dot, cross: 3.2, ring: 2.3 }[style] * (style === "dots" ? 1 : crowd) * ratio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = stroke;
    ctx.lineWidth = (0.5 + 0.7 * crowd) * ratio;
    ctx.beginPath();
    for (let i = 0; i < times.length; i++) {
      if (values[i] == null) continue;
      const x = u.valToPos(times[i], "x", true), y = u.valToPos(values[i], "y", true);
      if (x < left - 9 || x > left + width + 9) continue;
      if (style === "dots") {
        ctx.rect(x - size, y - size, 2 * size, 2 * size);
      } else if (style === "cross") {
        ctx.moveTo(x - size, y - size);
        ctx.lineTo(x + size, y + size);
        ctx.moveTo(x - size, y + size);
        ctx.lineTo(x + size, y - size);
      } else {
        ctx.moveTo(x + size, y);
        ctx.arc(x, y, size, 0, 2 * Math.PI);
      }
    }
    if (style === "dots") ctx.fill();
    else ctx.stroke();
    ctx.restore();
  }

  // Behind everything: the phases of the path, named above the plot.
  function drawPhases(u) {
    const head = headHeight(u.width);
    const { ctx } = u, ratio = uPlot.pxRatio, { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.font = font(11.5 * ratio);
    ctx.textBaseline = "middle";
    ctx.textAlign = "center";
    for (const phase of data.phases) {
      const from = Math.max(left, u.valToPos(phase.from_s, "x", true));
      const to = Math.min(left + width, u.valToPos(phase.to_s, "x", true));
      if (to <= from) continue;
      if (phase.kind !== "plain") {
        ctx.fillStyle = color(phase.kind);
        ctx.fillRect(from, top - head * ratio, to - from, height + head * ratio);
      }
      ctx.fillStyle = color("quiet");
      const label = phase.labels.find((l) => ctx.measureText(l).width + 8 * ratio <= to - from);
      if (label) ctx.fillText(label, (from + to) / 2, top - (head - PHASE_ROW / 2) * ratio);
    }
    ctx.restore();
  }

  // A level for each exchange, so that numbers which are close in time do not cover each other.
  function levels(xs, spacing) {
    const ends = Array(MARK_LEVELS).fill(-Infinity);
    return xs.map((x) => {
      const level = ends.findIndex((end) => x - end >= spacing);
      if (level >= 0) ends[level] = x;
      return level;
    });
  }

  function markRows(width) {
    const span = Math.max(data.end_s, 1e-9);
    const used = levels(data.marks.map((m) => (m.t_s / span) * (width - 90)), 2 * MARK_RADIUS + 2);
    return Math.max(1, ...used.map((level) => level + 1));
  }

  // Above a plot: a row of names of phases, and below it rows of numbers of exchanges.
  function headHeight(width) {
    return PHASE_ROW + (data.marks.length ? MARK_ROW * markRows(width) : 0) + 2;
  }

  // Exchanges: a line each, with its number on top.
  function drawExchanges(u) {
    const { ctx } = u, ratio = uPlot.pxRatio, { left, top, width, height } = u.bbox;
    const shown = data.marks
      .map((mark) => ({ label: mark.label, x: u.valToPos(mark.t_s, "x", true) }))
      .filter((mark) => mark.x >= left && mark.x <= left + width);
    const level = levels(shown.map((m) => m.x), (2 * MARK_RADIUS + 2) * ratio);
    ctx.save();
    ctx.font = "600 " + font(10.5 * ratio);
    ctx.textBaseline = "middle";
    ctx.textAlign = "center";
    ctx.lineWidth = ratio;
    shown.forEach((mark, i) => {
      const y = top - MARK_ROW * (Math.max(level[i], 0) + 0.5) * ratio;
      ctx.strokeStyle = color("mark");
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(mark.x, level[i] < 0 ? top : y);
      ctx.lineTo(mark.x, top + height);
      ctx.stroke();
      if (level[i] < 0) return;
      ctx.setLineDash([]);
      ctx.fillStyle = color("mark");
      ctx.beginPath();
      ctx.arc(mark.x, y, MARK_RADIUS * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.fillStyle = color("page");
      ctx.fillText(mark.label, mark.x, y + 0.5 * ratio);
    });
    ctx.restore();
  }

  function seriesOptions(series, unit) {
    const stroke = color(series.role);
    const value = (u, v) => (v == null ? "–" : v.toFixed(digits(v)) + " " + unit);
    const options = { label: series.name, stroke, value, show: series.shown, width: 1.6, points: { show: false }, spanGaps: true };
    if (series.style === "step" || series.style === "dash") options.paths = uPlot.paths.stepped({ align: 1 });
    if (series.style === "step") options.width = 1.3;
    if (series.style === "dash") Object.assign(options, { dash: [6, 4], width: 1.2 });
    if (["dots", "cross", "ring"].includes(series.style)) options.paths = () => null;
    if (series.role === "fixed") options.width = Math.min(options.width, 1.3);
    options.fill = undefined;
    return options;
  }

  function axis(label, side) {
    return {
      label, stroke: color("ink"), font: font(12), labelFont: font(12.5), labelSize: side ? 24 : 22, size: side ? 48 : 32,
      grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("rule"), width: 1, size: 5 },
      values: (u, splits) => splits.map((v) => (v == null ? "" : String(Math.round(v * 1e6) / 1e6))),
    };
  }

  function valueRange(chart, min, max) {
    if (!chart.excerpt || min == null) return [0, max > 0 ? max * 1.06 : 1];
    const margin = Math.max((max - min) * 0.04, 1e-6);
    return [min - margin, max + margin];
  }

  function build(chart, element, width) {
    const aligned = uPlot.join(chart.series.map((s) => [s.t, s.v]));
    const marks = { hooks: {
      drawClear: drawPhases,
      drawSeries: (u, index) => {
        const series = chart.series[index - 1];
        if (series && u.series[index].show && ["dots", "cross", "ring"].includes(series.style))
          drawMarks(u, index, chart, series.style, color(series.role));
      },
      draw: drawExchanges,
    } };
    const plot = new uPlot({
      width, height: (HEIGHTS[chart.id] || 300) * (printing ? PRINT_HEIGHT : 1),
      padding: [headHeight(width) + 2, 14, 0, 0],
      plugins: [marks],
      cursor: { sync: chart.excerpt ? undefined : { key: "time", setSeries: false }, drag: { x: true, y: false }, dataIdx: nearest, points: { size: 7 } },
      scales: {
        x: { time: false, range: (u, min, max) => (min == null ? [chart.from_s, chart.end_s] : [min, max]) },
        y: { range: (u, min, max) => valueRange(chart, min, max) },
      },
      axes: [axis("Time since the first datagram (s)", false), axis(chart.y_label, true)],
      series: [{ label: "Time", value: (u, v) => (v == null ? "–" : v.toFixed(3) + " s") }]
        .concat(chart.series.map((s) => seriesOptions(s, chart.unit))),
      legend: { markers: { width: 0, fill: (u, i) => color(chart.series[i - 1].role) } },
    }, aligned, element);
    plot.setScale("x", { min: chart.from_s, max: chart.end_s });
    return plot;
  }

  function drawAll(width) {
    const hidden = plots.map((p) => p.series.map((s) => s.show));
    plots.forEach((plot) => plot.destroy());
    plots = data.charts.filter((c) => document.getElementById(c.id)).map((chart, i) => {
      const element = document.getElementById(chart.id);
      const plot = build(chart, element, width || element.clientWidth);
      (hidden[i] || []).forEach((show, s) => s > 0 && plot.series[s].show !== show && plot.setSeries(s, { show }));
      return plot;
    });
    root.dataset.charts = String(plots.length);
  }

  function redraw() {
    if (!printing) drawAll();
  }
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(timer);
    timer = setTimeout(redraw, 100);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => {
    printing = true;
    root.classList.add("printing");
    drawAll(PRINT_WIDTH);
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    root.classList.remove("printing");
    drawAll();
  });
  width = window.innerWidth;
  drawAll();
})();
