'use strict';

const SPAN_S = 60, FRESH_MS = 8000, STEPS = 100, LOG_MAX = 40;
const TRAFFICS = [['file', 'File'], ['voice', 'Voice'], ['keys', 'Keystrokes']];
const ASKS = [['bulk', 'fast'], ['interactive', 'responsive']];
const SIDES = { uts: 'UTS', fixed: 'UTS, first profile fixed', tcp: 'Kernel TCP (CUBIC)' };
const by = id => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(child => child !== null));
  return element;
}

// Three digits that count; with zeros at the end, so that figures that change keep their width.
const figure = value =>
  value === null || value === undefined ? '–' : value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

const shown = value => value === null || value === undefined ? '–' : String(Number(figure(value)));

// Light and dark.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  by('theme').setAttribute('aria-pressed', String(theme === 'dark'));
  for (const chart of Object.values(charts)) chart.dress();
}

// Pictures: a minute of one figure, both sides in one picture.

const times = [], rates = [], moves = [], decisions = [];
const charts = {};

class Chart {
  constructor(id, top, withRate) {
    Object.assign(this, { id, top, withRate, series: [[], []] });
  }

  color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  data() {
    const both = [times, ...this.series];
    return this.withRate ? [...both, rates] : both;
  }

  dress() {
    if (this.plot) this.plot.destroy();
    const place = by(this.id);
    const size = Math.max(12, Math.round(parseFloat(getComputedStyle(place).fontSize) * 0.8));
    const font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: this.color('--faint'), font, grid: { stroke: this.color('--line'), width: 1 }, ticks: { show: false } };
    const lines = [
      { stroke: this.color('--side0'), width: 3 },
      { stroke: this.color('--side1'), width: 3, dash: [9, 5] },
    ];
    if (this.withRate) lines.push({ stroke: this.color('--strong'), width: 1.5, dash: [2, 4] });
    const last = () => times.length ? times[times.length - 1] : 0;
    this.plot = new uPlot({
      width: Math.max(80, place.clientWidth), height: Math.max(60, place.clientHeight),
      legend: { show: false }, cursor: { show: false }, padding: [size * 0.7, size * 1.6, 0, 0],
      scales: {
        x: { time: false, range: () => [last() - SPAN_S, last()] },
        y: { range: (_, least, most) => this.top(most) },
      },
      axes: [
        { ...axis, size: size * 1.9, splits: () => [60, 45, 30, 15, 0].map(ago => last() - ago),
          values: (_, splits) => splits.map(at => Math.round(last() - at)).map(ago => ago ? `−${ago} s` : 'now') },
        { ...axis, size: size * 3.6, space: size * 2.2 },
      ],
      series: [{}, ...lines.map(line => ({ ...line, points: { show: false }, spanGaps: false }))],
      hooks: { draw: [plot => this.mark(plot)] },
    }, this.data(), place);
  }

  // When the path was moved, and when mechanisms were exchanged.
  mark(plot) {
    const { ctx, bbox } = plot;
    const line = (at, color, dash) => {
      const x = plot.valToPos(at, 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      ctx.strokeStyle = color;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    };
    ctx.save();
    ctx.lineWidth = 2 * devicePixelRatio;
    moves.forEach(at => line(at, this.color('--strong'), []));
    decisions.forEach(at => line(at, this.color('--side0'), [3 * devicePixelRatio, 4 * devicePixelRatio]));
    ctx.restore();
  }

  draw() {
    this.plot.setData(this.data());
  }

  resize() {
    const place = by(this.id);
    this.plot.setSize({ width: Math.max(80, place.clientWidth), height: Math.max(60, place.clientHeight) });
  }
}

const from0 = (least, room) => most => [0, Math.max(least, (most || 0) * room)];

function addPoint(point) {
  times.push(point.t);
  rates.push(point.rate);
  const figures = { file: 'file', voice: 'in_time', keys: 'keys' };
  for (const [id, name] of Object.entries(figures)) {
    point.sides.forEach((side, n) => charts[id].series[n].push(side[name]));
  }
  while (times.length && times[0] < point.t - SPAN_S - 2) {
    times.shift();
    rates.shift();
    Object.values(charts).forEach(chart => chart.series.forEach(values => values.shift()));
  }
  for (const marks of [moves, decisions]) while (marks.length && marks[0] < point.t - SPAN_S) marks.shift();
}

let spoken = 0;

function showPoint(point) {
  const now = arrows(point.now);
  if (by('now').textContent !== now) by('now').textContent = now;
  const more = {
    file: side => `${side.carried >= 1000 ? shown(side.carried / 1000) + ' GB' : shown(side.carried) + ' MB'} so far`,
    voice: side => side.voice === null ? 'silent' : `${shown(side.voice)} ms`,
    keys: side => side.rtt === null ? '' : `round trip ${shown(side.rtt)} ms`,
  };
  point.sides.forEach((side, n) => {
    by(`file${n}`).textContent = figure(side.file);
    by(`voice${n}`).textContent = side.in_time === null ? '–' : `${Math.round(side.in_time)} %`;
    by(`keys${n}`).textContent = figure(side.keys);
    for (const [id, words] of Object.entries(more)) by(`${id}${n}-more`).textContent = words(side);
  });
  Object.values(charts).forEach(chart => chart.draw());
  if (point.t - spoken < 5) return;
  spoken = point.t;
  const names = [0, 1].map(n => by(`side${n}`).textContent);
  for (const [id, name] of TRAFFICS) {
    const values = [0, 1].map(n => `${names[n]} ${by(`${id}${n}`).textContent}`);
    by(id).setAttribute('aria-label', `${name}, the last minute as a picture; now ${values.join(', ')}`);
  }
}

// The path.

let sliders = [], knobs = null, moving = null, isSending = false;

const valueAt = ({ min, max, from }, position) => {
  if (position <= 0) return min;
  const value = from * (max / from) ** (position / STEPS);
  return Math.min(max, Math.max(min, Number(value.toPrecision(value < 10 ? 2 : 3))));
};
const positionOf = ({ min, max, from }, value) =>
  value <= Math.max(min, from) && value <= min ? 0 : Math.round(Math.log(value / from) / Math.log(max / from) * STEPS);

function makeSliders(hello) {
  sliders = hello.sliders;
  by('sliders').replaceChildren(...sliders.map(slider => {
    const input = make('input', { type: 'range', id: `k-${slider.name}`, min: 0, max: STEPS, step: 1, title: slider.help });
    input.setAttribute('aria-describedby', `h-${slider.name}`);
    input.addEventListener('input', () => {
      knobs = { ...knobs, [slider.name]: valueAt(slider, Number(input.value)) };
      showKnobs(slider.name);
      explainSoon();
    });
    input.addEventListener('change', () => send(knobs));
    return make('div', { className: 'slider' },
      make('label', { htmlFor: input.id, textContent: slider.label }),
      make('output', { id: `v-${slider.name}`, htmlFor: input.id }),
      input,
      make('span', { id: `h-${slider.name}`, className: 'quiet', textContent: slider.help }));
  }));
  by('presets').replaceChildren(...hello.presets.map(preset => {
    const button = make('button', { type: 'button', textContent: preset.name });
    button.addEventListener('click', () => {
      knobs = preset.knobs;
      showKnobs();
      send(knobs);
      explainSoon();
    });
    button.dataset.knobs = JSON.stringify(preset.knobs);
    return button;
  }));
}

function showKnobs(moved) {
  for (const slider of sliders) {
    const { name, unit } = slider, value = knobs[name], input = by(`k-${name}`);
    if (name !== moved) input.value = positionOf(slider, value);
    const words = `${shown(value)} ${value === 1 ? unit.replace(/s$/, '') : unit}`;
    input.setAttribute('aria-valuetext', words);
    by(`v-${name}`).textContent = words;
  }
  const isSame = preset => sliders.every(({ name }) => preset[name] === knobs[name]);
  for (const button of by('presets').children) {
    button.setAttribute('aria-pressed', String(isSame(JSON.parse(button.dataset.knobs))));
  }
}

// The latest position counts; one request at a time.
async function send(position) {
  moving = position;
  if (isSending) return;
  isSending = true;
  while (moving) {
    const wanted = moving;
    moving = null;
    try {
      const answer = await post('path', wanted);
      fault(answer.ok ? '' : `The path has not moved: ${await answer.text()}`);
    } catch {
      fault('The path has not moved: the server does not answer.');
    }
  }
  isSending = false;
}

function fault(words) {
  by('fault').textContent = words;
  by('fault').hidden = !words;
}

// The stack as it is, and what the selector would take on this path.

let traffic = 'file', stacks = {}, choices = {}, explaining = null, opened = new Set();
const changedAt = {};

function makeChoices(place, group, choices, chosen, choose) {
  by(place).append(...choices.map(([value, label]) => {
    const input = make('input', { type: 'radio', name: group, value, checked: value === chosen });
    input.addEventListener('change', () => choose(value));
    return make('label', { className: 'choice' }, input, make('span', { textContent: label }));
  }));
}

const post = (place, words) =>
  fetch(place, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(words) });

async function ask(asks) {
  try {
    const answer = await post('asks', asks);
    fault(answer.ok ? '' : `The connection was not asked: ${await answer.text()}`);
  } catch {
    fault('The connection was not asked: the server does not answer.');
  }
}

function showAsks(asks) {
  document.querySelector(`#asks input[value=${asks}]`).checked = true;
  explainSoon();
}

function explainSoon() {
  clearTimeout(explaining);
  explaining = setTimeout(async () => {
    try {
      const answer = await fetch(`explain?${new URLSearchParams(knobs)}`);
      if (!answer.ok) return;
      choices = {};
      for (const one of await answer.json()) {
        choices[one.traffic] = { functions: new Map(one.functions.map(f => [f.function, f])), inTime: one.in_time };
      }
      showStack();
    } catch { /* Said elsewhere: the server is gone. */ }
  }, 80);
}

function setStack(name, tiles) {
  const before = new Map((stacks[name] || []).map(tile => [tile.function, tile.mechanism]));
  for (const { function: f, mechanism } of tiles) {
    const was = before.get(f);
    if (was !== undefined && was !== mechanism) changedAt[`${name} ${f}`] = { was, until: Date.now() + FRESH_MS };
  }
  stacks[name] = tiles;
  showStack();
  setTimeout(showStack, FRESH_MS + 100);
}

function showStack() {
  const chosen = choices[traffic];
  const focused = document.activeElement?.closest?.('#tiles li')?.dataset.function;
  by('tiles').replaceChildren(...(stacks[traffic] || []).map(tile => {
    // What is shared is chosen for the connection, whose requirements the file has.
    const choice = (tile.shared ? choices.file : chosen)?.functions.get(tile.function), fresh = changedAt[`${traffic} ${tile.function}`];
    const isFresh = fresh && fresh.until > Date.now();
    const isOther = choice && choice.mechanism !== tile.mechanism;
    const words = [make('span', { className: 'function', textContent: tile.function }),
      make('span', { className: 'mechanism', textContent: tile.mechanism })];
    const details = make('details', { open: opened.has(tile.function) },
      make('summary', {}, ...words),
      make('span', { className: 'reason', textContent: choice ? `For this path: ${choice.mechanism}. ${sentence(choice.why)}` : '' }));
    details.addEventListener('toggle', () => details.open ? opened.add(tile.function) : opened.delete(tile.function));
    const item = make('li', { className: `${tile.inert ? 'inert' : ''} ${isFresh ? 'fresh' : ''}` }, details,
      isFresh ? make('span', { className: 'was', textContent: `was ${fresh.was}` }) : null,
      isOther && !isFresh ? make('span', { className: 'would', textContent: `explain: ${choice.mechanism}` }) : null);
    item.dataset.function = tile.function;
    return item;
  }));
  if (focused) by('tiles').querySelector(`[data-function="${focused}"] summary`)?.focus();
  const inTime = chosen?.inTime;
  by('foretold').textContent = inTime ? `Predicted for the best choice: ${inTime}.`
    : 'Each line says why, for the path of the sliders. “explain” is what the selector would take for a connection that begins there.';
}

const sentence = words => words ? words[0].toUpperCase() + words.slice(1) + (words.endsWith('.') ? '' : '.') : '';

// Exchanges, as they are decided.

const entries = new Map();

function addEvent(event) {
  const name = by(`side${event.side}`)?.textContent;
  if (event.kind === 'moved') {
    moves.push(event.t);
    return logEntry(null, 'moved', `The path: ${event.text}`, event.t);
  }
  if (event.kind === 'asks') {
    return logEntry(null, 'moved', `The application asks for another connection: ${new Map(ASKS).get(event.asks)}`, event.t);
  }
  if (event.kind === 'broken') return logEntry(null, 'broken', `${name} begins anew: ${event.text}`, event.t);
  if (event.side !== 0) return;
  const key = event.epoch;
  if (event.kind === 'asked') {
    // The file has the requirements of the connection.
    const label = { voice: 'Voice', keys: 'Keystrokes' }[event.traffic] || 'Connection and file';
    const entry = logEntry(key, 'asked', `${label}: asks`, event.t);
    entry.label = label;
    say(entry, 'saw', event.saw || 'the application asked');
    say(entry, 'changed', event.changed);
    say(entry, 'expects', event.expects);
    return;
  }
  const entry = entries.get(key);
  if (!entry) return;
  const words = { agreed: 'in force', refused: 'refused', failed: 'no answer', brought: 'in force' };
  entry.item.className = event.kind;
  entry.title.textContent = `${entry.label}: ${words[event.kind] || event.kind}`;
  if (event.kind === 'agreed') decisions.push(event.t);
  say(entry, event.kind === 'refused' ? 'why' : 'brought', event.brought);
}

function logEntry(key, kind, title, at) {
  const heading = make('span', { textContent: title }), list = make('dl');
  const clock = `${Math.floor(at / 60)}:${String(Math.floor(at % 60)).padStart(2, '0')}`;
  const item = make('li', { className: kind }, make('h3', {}, heading, make('time', { textContent: clock })), list);
  by('log').prepend(item);
  by('none').hidden = true;
  while (by('log').children.length > LOG_MAX) by('log').lastChild.remove();
  const entry = { item, title: heading, list };
  if (key !== null) entries.set(key, entry);
  if (entries.size > 2 * LOG_MAX) entries.delete(entries.keys().next().value);
  return entry;
}

// Texts of the library have arrows of two letters.
const arrows = text => text.replaceAll(' -> ', ' → ');

function say(entry, word, text) {
  if (text) entry.list.append(make('dt', { textContent: word }), make('dd', { textContent: arrows(text) }));
}

// The server's words.

const hear = {
  hello(hello) {
    hello.kinds.forEach((kind, n) => { by(`side${n}`).textContent = SIDES[kind]; });
    by('why').hidden = !hello.why;
    by('why').textContent = hello.why ? `Beside UTS stands UTS that keeps its first profiles, and not the kernel’s TCP: ${hello.why}.` : '';
    by('voice-unit').textContent = `% in time, within ${hello.deadline} ms`;
    knobs = hello.knobs;
    showAsks(hello.asks);
    makeSliders(hello);
    showKnobs();
    for (const list of [times, rates, moves, decisions]) list.length = 0;
    Object.values(charts).forEach(chart => { chart.series = [[], []]; });
    hello.points.forEach(addPoint);
    by('log').replaceChildren();
    entries.clear();
    hello.events.forEach(addEvent);
    stacks = hello.stacks[0];
    showStack();
    explainSoon();
    if (hello.points.length) showPoint(hello.points.at(-1));
  },
  point(point) {
    addPoint(point);
    showPoint(point);
  },
  knobs(word) {
    // Whoever holds a slider here has the last word.
    if (isSending || document.querySelector('#sliders input:active')) return;
    knobs = word.knobs;
    showKnobs();
    explainSoon();
  },
  asks: word => showAsks(word.asks),
  stack(word) {
    if (word.side === 0) setStack(word.traffic, word.tiles);
  },
  event: addEvent,
};

function listen() {
  const source = new EventSource('events');
  source.onmessage = message => {
    const word = JSON.parse(message.data);
    hear[word.what]?.(word);
  };
  source.onerror = () => {
    by('now').textContent = 'The server does not answer. The page tries again.';
    // Others look already: the browser would not try again by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  };
}

charts.file = new Chart('file', from0(1, 1.1), true);
charts.voice = new Chart('voice', () => [0, 105], false);
charts.keys = new Chart('keys', from0(100, 1.15), false);
const dark = matchMedia('(prefers-color-scheme: dark)');
setTheme(dark.matches ? 'dark' : 'light');
dark.addEventListener('change', () => setTheme(dark.matches ? 'dark' : 'light'));
by('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
new ResizeObserver(() => Object.values(charts).forEach(chart => chart.resize())).observe(by('carried'));
makeChoices('traffics', 'traffic', TRAFFICS, traffic, name => {
  traffic = name;
  showStack();
});
makeChoices('asks', 'asks', ASKS, 'bulk', ask);
listen();
