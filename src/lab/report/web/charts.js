// Drawings as inline SVG: axes, lines, bars and the roofline. All figures come from rows of the
// report; `figureOf` is what the page calls.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const kWidth = 960;

function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'text') node.textContent = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Phases keep their order and so their colour, whichever comes first in a table.
const kPhases = ['forward', 'backward', 'optimizer', 'communication', 'none'];
function inOrder(names) {
  const known = kPhases.filter(name => names.includes(name));
  return [...known, ...names.filter(name => !kPhases.includes(name))];
}

const colour = index => `var(--c${index % 9})`;

// --- the note that follows the pointer -------------------------------------------------------------

function tip(event, text) {
  const box = document.getElementById('tip');
  if (!text) { box.style.display = 'none'; return; }
  box.textContent = text;
  box.style.display = 'block';
  const x = Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8);
  const y = Math.min(event.clientY + 14, window.innerHeight - box.offsetHeight - 8);
  box.style.left = Math.max(4, x) + 'px';
  box.style.top = Math.max(4, y) + 'px';
}

function withTip(node, text) {
  node.addEventListener('pointermove', event => tip(event, text));
  node.addEventListener('pointerleave', event => tip(event, ''));
  return node;
}

// --- axes ------------------------------------------------------------------------------------------

// From values to pixels, with ticks at round values (of bytes: at powers of two).
function scale(low, high, from, to, isLog, isBytes) {
  if (isLog) {
    const a = Math.log10(low), span = Math.log10(high) - a || 1;
    const at = v => from + (Math.log10(v) - a) / span * (to - from);
    let ticks = [];
    const base = isBytes ? 16 : 10;
    for (let e = Math.floor(Math.log(low) / Math.log(base)); base ** e <= high * 1.0001; ++e) {
      if (base ** e >= low * 0.9999) ticks.push(base ** e);
    }
    if (ticks.length < 2) ticks = [low, Math.sqrt(low * high), high];
    return {at, ticks};
  }
  const span = high - low || 1, rough = span / 5;
  const unit = isBytes ? 1024 ** Math.floor(Math.log(Math.max(rough, 1)) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(rough / unit));
  const step = [1, 2, 5, 10].map(m => m * power * unit).find(s => s >= rough) || power * unit;
  const ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) {
    ticks.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  }
  return {at: v => from + (v - low) / span * (to - from), ticks};
}

// A tick's text: as short as the value allows.
function tickText(value, column) {
  if (column.kind === 'bytes') return bytes(value).replace(/\.0+ /, ' ');
  const size = Math.abs(value);
  if (size >= 1e4 && size < 1e15) {
    const units = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
    for (const [factor, letter] of units) {
      if (size >= factor) return String(Number((value / factor).toPrecision(3))) + letter;
    }
  }
  if (value !== 0 && size < 1e-3) return value.toExponential(0);
  return String(Number(value.toPrecision(3)));
}

function axes(svg, box, x, y, columns) {
  for (const tick of y.ticks) {
    svg.append(draw('line', {class: 'grid', x1: box.left, x2: box.right, y1: y.at(tick), y2: y.at(tick)}),
      draw('text', {class: 'soft', x: box.left - 7, y: y.at(tick) + 4, 'text-anchor': 'end',
                    text: tickText(tick, columns.y)}));
  }
  for (const tick of x.ticks) {
    svg.append(draw('line', {class: 'grid', x1: x.at(tick), x2: x.at(tick), y1: box.top, y2: box.bottom}),
      draw('text', {class: 'soft', x: x.at(tick), y: box.bottom + 17, 'text-anchor': 'middle',
                    text: tickText(tick, columns.x)}));
  }
  const name = c => titleOf(c) + (c.unit && c.kind !== 'bytes' ? ` (${c.unit})` : '');
  svg.append(draw('path', {class: 'axis', d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`}),
    draw('text', {x: (box.left + box.right) / 2, y: box.bottom + 36, 'text-anchor': 'middle', text: name(columns.x)}),
    draw('text', {x: box.left, y: box.top - 9, text: name(columns.y)}));
}

function legend(names) {
  return make('div', {class: 'legend'}, ...names.map((name, i) => make('span', {},
    make('i', {style: `background:${colour(i)}`}), name)));
}

function rowsFor(chart) {
  const where = Object.entries(chart.where || {});
  return rowsOf(chart.table).filter(row => where.every(([key, value]) => row[key] === value));
}

// --- lines -----------------------------------------------------------------------------------------

// One line per series and y column: [{name, points: [[x, y, row]]}].
function seriesOf(chart) {
  const out = new Map();
  const add = (name, point) => {
    if (!out.has(name)) out.set(name, []);
    out.get(name).push(point);
  };
  for (const row of rowsFor(chart)) {
    const key = (chart.series || []).map(name =>
      columnOf(chart.table, name).kind === 'text' ? row[name] : `${titleOf(columnOf(chart.table, name))} ${row[name]}`);
    if (chart.list) {
      (row[chart.list] || []).forEach((v, i) => add(key.join(' '), [i + 1, v]));
      continue;
    }
    for (const column of chart.y) {
      if (typeof row[column] !== 'number' || typeof row[chart.x] !== 'number') continue;
      const title = chart.y.length > 1 ? [titleOf(columnOf(chart.table, column))] : [];
      add([...key, ...title].join(' ') || titleOf(columnOf(chart.table, column)), [row[chart.x], row[column]]);
    }
  }
  return [...out].map(([name, points]) => ({name, points: points.sort((a, b) => a[0] - b[0])}));
}

function lines(chart) {
  const series = seriesOf(chart), points = series.flatMap(s => s.points);
  if (!points.length) return [make('p', {class: 'soft', text: 'There are no rows to draw.'})];
  const columns = {
    x: chart.list ? {name: chart.x_title} : columnOf(chart.table, chart.x),
    y: chart.list ? {title: 'time', unit: 'ms'} : columnOf(chart.table, chart.y[0])};
  const log = chart.log || '', height = 340;
  const box = {left: 74, right: kWidth - 16, top: 28, bottom: height - 46};
  const logX = log.includes('x'), logY = log.includes('y');
  const xs = points.map(p => p[0]), ys = points.map(p => p[1]).filter(v => !logY || v > 0);
  const room = logY ? 1.15 : 1.05;
  const x = scale(Math.min(...xs), Math.max(...xs), box.left + 8, box.right - 8, logX, false);
  if (logX) x.ticks = [...new Set(xs)].sort((a, b) => a - b);  // contexts: the measured ones
  const y = scale(logY ? Math.min(...ys) / room : Math.min(0, ...ys), Math.max(...ys) * room,
                  box.bottom, box.top, logY, columns.y.kind === 'bytes');
  const svg = draw('svg', {viewBox: `0 0 ${kWidth} ${height}`, role: 'img', 'aria-label': chart.title});
  axes(svg, box, x, y, columns);
  series.forEach((s, i) => {
    const at = p => [x.at(p[0]), y.at(logY ? Math.max(p[1], Math.min(...ys)) : p[1])];
    svg.append(draw('path', {fill: 'none', stroke: colour(i), 'stroke-width': 2,
      'stroke-dasharray': i >= 9 ? '5 4' : 'none', d: 'M' + s.points.map(p => at(p).join(' ')).join('L')}));
    const marks = s.points.length <= 24;
    for (const p of s.points) {
      const [cx, cy] = at(p);
      const text = `${s.name}\n${titleOf(columns.x)} ${p[0]}: ${labelled(p[1], columns.y)}`;
      svg.append(withTip(draw('circle', {cx, cy, r: marks ? 3.5 : 5, fill: marks ? colour(i) : 'transparent'}), text));
    }
  });
  return [svg, legend(series.map(s => s.name))];
}

// --- bars ------------------------------------------------------------------------------------------

// Bars are sums over all rows with one label; segments are value columns or the values of `stack`.
function barsOf(chart) {
  const bars = new Map(), names = [];
  const add = (label, name, value) => {
    if (!names.includes(name)) names.push(name);
    if (!bars.has(label)) bars.set(label, new Map());
    bars.get(label).set(name, (bars.get(label).get(name) || 0) + value);
  };
  for (const row of rowsFor(chart)) {
    const label = chart.label.map(c => row[c]).filter(v => v !== null).join(' ');
    if (!label || (chart.skip || []).includes(row[chart.label[0]])) continue;
    for (const column of chart.values) {
      if (typeof row[column] !== 'number') continue;
      add(label, chart.stack ? row[chart.stack] || 'none' : titleOf(columnOf(chart.table, column)), row[column]);
    }
  }
  let list = [...bars].map(([label, parts]) => ({label, parts, sum: [...parts.values()].reduce((a, b) => a + b, 0)}));
  if (chart.top) {
    list.sort((a, b) => b.sum - a.sum);
    const rest = list.slice(chart.top);
    list = list.slice(0, chart.top);
    if (rest.length) {
      const parts = new Map();
      for (const bar of rest) for (const [k, v] of bar.parts) parts.set(k, (parts.get(k) || 0) + v);
      list.push({label: `${rest.length} more`, parts, sum: rest.reduce((a, b) => a + b.sum, 0)});
    }
  }
  return {list, names: inOrder(names)};
}

// Names of kernels are long: without return type and namespaces, and of those that begin alike the
// beginning and what follows the part that they share.
const kLabelLetters = 38, kHeadLetters = 14;
function shortened(labels) {
  const plain = labels.map(l => l.replace(/^void /, '').replace(/(\w+|\(anonymous namespace\))::/g, ''));
  const shared = (a, b) => {
    let n = 0;
    while (n < Math.min(a.length, b.length) && a[n] === b[n]) ++n;
    return n;
  };
  return plain.map((label, i) => {
    if (label.length <= kLabelLetters) return label;
    const same = Math.max(0, ...plain.map((other, k) => k === i ? 0 : shared(label, other)));
    const room = kLabelLetters - kHeadLetters - 1;
    const from = Math.min(Math.max(same - 4, kHeadLetters), label.length - room);
    return from <= kHeadLetters ? label.slice(0, kLabelLetters - 1) + '…'
      : label.slice(0, kHeadLetters) + '…' + label.slice(from, from + room);
  });
}

function bars(chart) {
  const {list, names} = barsOf(chart), column = columnOf(chart.table, chart.values[0]);
  if (!list.length) return [make('p', {class: 'soft', text: 'There are no rows to draw.'})];
  const rowHeight = 21, top = 28, logX = (chart.log || '').includes('x');
  const labels = shortened(list.map(b => b.label)), widest = Math.max(...labels.map(l => l.length));
  const left = Math.min(330, 22 + widest * 7.8);
  const box = {left, right: kWidth - 104, top, bottom: top + list.length * rowHeight + 4};
  const svg = draw('svg', {viewBox: `0 0 ${kWidth} ${box.bottom + 30}`, role: 'img', 'aria-label': chart.title});
  const high = Math.max(...list.map(b => b.sum)), sums = list.map(b => b.sum).filter(v => v > 0);
  const low = logX ? 10 ** Math.floor(Math.log10(Math.min(...sums)) - 0.2) : 0;
  const x = scale(low, logX ? high * 1.2 : high, box.left, box.right, logX, column.kind === 'bytes');
  for (const tick of x.ticks) {
    svg.append(draw('line', {class: 'grid', x1: x.at(tick), x2: x.at(tick), y1: box.top, y2: box.bottom}),
      draw('text', {class: 'soft', x: x.at(tick), y: box.bottom + 17, 'text-anchor': 'middle', text: tickText(tick, column)}));
  }
  const unit = column.unit && column.kind !== 'bytes' ? ` (${column.unit})` : '';
  svg.append(draw('text', {x: box.left, y: box.top - 10, text: titleOf(column) + unit}));
  list.forEach((bar, i) => {
    const y = box.top + i * rowHeight + 3;
    svg.append(draw('text', {x: box.left - 8, y: y + 13, 'text-anchor': 'end', text: labels[i]}));
    let sum = low;
    for (const name of names) {
      const value = bar.parts.get(name);
      if (!value) continue;
      const end = logX ? Math.max(value, low) : sum + value;
      const text = `${bar.label}${names.length > 1 ? '\n' + name : ''}: ${labelled(value, column)}`;
      svg.append(withTip(draw('rect', {x: x.at(sum), y, width: Math.max(0.5, x.at(end) - x.at(sum)), height: rowHeight - 6,
        fill: colour(names.indexOf(name)), rx: 1.5}), text));
      sum = end;
    }
    svg.append(draw('text', {class: 'soft', x: x.at(logX ? Math.max(bar.sum, low) : bar.sum) + 7, y: y + 13, text: labelled(bar.sum, column)}));
  });
  svg.append(draw('path', {class: 'axis', d: `M${box.left} ${box.top}V${box.bottom}`}));
  return names.length > 1 ? [svg, legend(names)] : [svg];
}

// --- the roofline ----------------------------------------------------------------------------------

function roofline(chart) {
  const rows = rowsOf(chart.table).filter(r => r.flops > 0 && r.bytes > 0 && r.ms > 0 && r.op);
  const ceilings = rowsOf(chart.ceilings);
  const bandwidth = ceilings.find(c => c.unit === 'GB/s'), flat = ceilings.filter(c => c.unit === 'GFLOP/s');
  if (!rows.length || !bandwidth) return [make('p', {class: 'soft', text: 'There is no measured roof.'})];
  const intensity = r => r.flops / r.bytes, speed = r => r.flops / r.ms * 1e-6;
  const roof = Math.max(...flat.map(c => c.value));
  const xs = rows.map(intensity), ys = rows.map(speed), height = 400;
  const box = {left: 74, right: kWidth - 16, top: 28, bottom: height - 46};
  const lowX = Math.min(0.05, ...xs) / 1.5, highX = Math.max(roof / bandwidth.value * 4, ...xs) * 1.5;
  const lowY = Math.min(bandwidth.value * lowX * 2, ...ys) / 1.5;
  const x = scale(lowX, highX, box.left, box.right, true), y = scale(lowY, Math.max(roof, ...ys) * 2, box.bottom, box.top, true);
  const svg = draw('svg', {viewBox: `0 0 ${kWidth} ${height}`, role: 'img', 'aria-label': chart.title});
  axes(svg, box, x, y, {x: {title: 'FLOPs per byte'}, y: {title: 'GFLOP/s'}});
  const start = Math.max(lowX, lowY / bandwidth.value), knee = roof / bandwidth.value;
  svg.append(draw('path', {class: 'axis', 'stroke-width': 2,
    d: `M${x.at(start)} ${y.at(start * bandwidth.value)}L${x.at(knee)} ${y.at(roof)}`}));
  const middle = Math.sqrt(start * knee), words = draw('g', {});
  words.append(draw('text', {class: 'over', x: x.at(middle) - 8, y: y.at(middle * bandwidth.value) - 10,
    'text-anchor': 'end', text: `${significant(bandwidth.value)} GB/s`}));
  // Ceilings so close that their words would overlap share them.
  const groups = [];
  for (const c of [...flat].sort((a, b) => b.value - a.value)) {
    svg.append(draw('path', {class: 'axis', 'stroke-width': 2, d: `M${x.at(c.value / bandwidth.value)} ${y.at(c.value)}H${box.right}`}));
    const last = groups[groups.length - 1];
    if (last && y.at(c.value) - y.at(last[0].value) < 16) last.push(c);
    else groups.push([c]);
  }
  for (const group of groups) {
    const [unit, name] = group[0].value >= 1e4 ? [1e3, 'TFLOP/s'] : [1, 'GFLOP/s'];
    const ends = [group[group.length - 1], group[0]].map(c => significant(c.value / unit));
    words.append(draw('text', {class: 'over', x: box.right, y: y.at(group[0].value) - 8, 'text-anchor': 'end',
                    text: `${[...new Set(ends)].join(' to ')} ${name}: ${group.length > 1 ? group.length + ' ceilings' : group[0].ceiling}`}));
  }
  const phases = inOrder([...new Set(rows.map(r => r[chart.series]))]), most = Math.max(...rows.map(r => r.ms));
  for (const r of [...rows].sort((a, b) => b.ms - a.ms)) {
    const text = `${r.op} of ${r.component}, ${r.phase}\n${significant(intensity(r))} FLOPs per byte, ` +
      `${significant(speed(r))} GFLOP/s\n${significant(r.ms)} ms, ${significant(r.share_percent)} % of the step` +
      (r.roof_percent ? `, ${significant(r.roof_percent)} % of its roof` : '');
    svg.append(withTip(draw('circle', {cx: x.at(intensity(r)), cy: y.at(speed(r)), r: 3 + 11 * Math.sqrt(r.ms / most),
      fill: colour(phases.indexOf(r[chart.series])), 'fill-opacity': 0.6, stroke: 'var(--ground)'}), text));
  }
  svg.append(words);
  return [svg, legend(phases), make('p', {class: 'soft',
    text: 'Area is time. Kernels without arithmetic (copies, gathers) have no place on these axes.'})];
}

function figureOf(chart) {
  const kinds = {lines, bars, roofline, timeline};
  const tools = make('span', {class: 'tools'});
  return make('figure', {}, make('figcaption', {}, chart.title, tools), ...kinds[chart.kind](chart, tools));
}
