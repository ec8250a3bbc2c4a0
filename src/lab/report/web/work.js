// The pieces of work of one step along time, from the rows of a table: a lane for passes, one for
// each depth of modules, and as many for kernels as run beside each other.
'use strict';

const kLane = 19, kMostDepth = 6, kMostBeside = 6;

// Neighbours of one name make one bar; a bar of modules spans its kernels and the gaps between them.
function barsOf(rows, nameOf) {
  const bars = [];
  let last = null;
  rows.forEach(row => {
    const name = nameOf(row);
    if (last && last.name === name && last.pass === row.pass) {
      last.end = Math.max(last.end, row.start_us + row.us);
      last.rows.push(row);
    } else {
      last = {name, pass: row.pass, begin: row.start_us, end: row.start_us + row.us, rows: [row]};
      if (name) bars.push(last);
    }
  });
  return bars;
}

function lanesOf(rows) {
  const lanes = [{title: 'pass', bars: barsOf(rows, row => row.pass)}];
  const parts = row => row.module ? row.module.split('/') : [];
  const deepest = Math.min(kMostDepth, rows.reduce((most, row) => Math.max(most, parts(row).length), 0));
  for (let depth = 1; depth <= deepest; ++depth) {
    const bars = barsOf(rows, row => parts(row).length < depth ? '' : parts(row).slice(0, depth).join('/'));
    bars.forEach(bar => { bar.label = bar.name.split('/').pop(); });
    lanes.push({title: 'modules', bars});
  }
  const beside = [];
  for (const row of rows) {
    let lane = beside.find(one => one.device === row.device && one.end <= row.start_us + 1e-6);
    if (!lane && beside.length < kMostBeside) beside.push(lane = {title: 'kernels', device: row.device, bars: []});
    if (!lane) lane = beside[beside.length - 1];
    lane.end = row.start_us + row.us;
    lane.bars.push({name: row.kernel, begin: row.start_us, end: lane.end, rows: [row], kind: row.kind});
  }
  return lanes.concat(beside);
}

function wordsOfBar(bar, step) {
  const row = bar.rows[0], sum = bar.rows.reduce((us, r) => us + r.us, 0);
  if (bar.kind) {
    return `${row.kernel}\n${row.us.toFixed(2)} µs, from ${(row.start_us / 1000).toFixed(3)} ms on\n${row.kind}, ${row.pass}` +
      (row.op ? `\nlaunched by ${row.op}` : '') + (row.module ? `\nin ${row.module}` : '');
  }
  return `${bar.name}, ${bar.pass}\n${bar.rows.length} kernels, ${(sum / 1000).toFixed(3)} ms of work (${(100 * sum / step).toFixed(1)} % of the step)\n` +
    `from ${(bar.begin / 1000).toFixed(3)} to ${(bar.end / 1000).toFixed(3)} ms`;
}

function drawWork(figure) {
  const rows = rowsOf(figure.dataset.table), canvas = figure.querySelector('canvas');
  if (!rows.length) return;
  const lanes = lanesOf(rows), whole = rows.reduce((end, row) => Math.max(end, row.start_us + row.us), 0);
  const kinds = [...new Set(rows.map(row => row.kind))], passes = [...new Set(rows.map(row => row.pass))];
  const find = make('input', {type: 'search', placeholder: 'find a kernel, op or module', 'aria-label': 'find'});
  const note = make('p', {class: 'soft', 'aria-live': 'polite'});
  let range = [0, whole], wanted = '';
  // A canvas knows no variables of a style: an element that has the colour tells what it is.
  const probe = make('i', {hidden: ''});
  figure.append(probe);
  const colour = name => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const fits = row => !wanted || [row.kernel, row.op, row.module].some(text => text && text.toLowerCase().includes(wanted));

  function paint() {
    const width = canvas.clientWidth, high = lanes.length * kLane + 16, scale = window.devicePixelRatio || 1;
    canvas.style.height = high + 'px';
    canvas.width = width * scale;
    canvas.height = high * scale;
    const c = canvas.getContext('2d'), at = us => (us - range[0]) / (range[1] - range[0]) * width;
    c.scale(scale, scale);
    c.font = '11px system-ui, sans-serif';
    c.textBaseline = 'middle';
    const ink = colour('--ink'), ground = colour('--ground');
    lanes.forEach((lane, i) => {
      let drawn = -1;  // bars of less than a pixel are drawn once
      for (const bar of lane.bars) {
        const x = at(bar.begin), end = at(bar.end);
        if (end < 0 || x > width || (end <= drawn && end - x < 0.5)) continue;
        const from = Math.max(0, x), wide = Math.max(0.6, Math.min(width, end) - from);
        drawn = from + wide;
        const place = bar.kind ? kinds.indexOf(bar.kind) : passes.indexOf(bar.pass) + 5;
        c.globalAlpha = bar.rows.some(fits) ? (bar.kind ? 1 : 0.45) : 0.12;
        c.fillStyle = colour('--c' + place % 9);
        c.fillRect(from, i * kLane, wide > 3 ? wide - 0.7 : wide, kLane - 2);
        if (wide < 34) continue;
        c.save();
        c.beginPath();
        c.rect(from, i * kLane, wide - 3, kLane);
        c.clip();
        c.fillStyle = bar.kind ? ground : ink;
        c.fillText(visible(bar.label || bar.name), from + 4, i * kLane + kLane / 2 - 1);
        c.restore();
      }
    });
    c.globalAlpha = 1;
    c.fillStyle = colour('--soft');
    c.fillText(`${(range[0] / 1000).toFixed(3)} ms`, 0, high - 7);
    c.textAlign = 'right';
    c.fillText(`${(range[1] / 1000).toFixed(3)} ms`, width, high - 7);
  }

  function say() {
    const found = wanted ? rows.filter(fits) : [], sum = found.reduce((us, row) => us + row.us, 0);
    note.textContent = wanted
      ? `${found.length} of ${rows.length} pieces of work, ${(sum / 1000).toFixed(3)} ms, ${(100 * sum / whole).toFixed(1)} % of the step`
      : `${rows.length} pieces of work in ${(whole / 1000).toFixed(3)} ms. Drag over a range to look closer; Ctrl or Shift with the wheel zooms; double-click shows all.`;
  }
  function show(from, to) {
    const width = Math.min(whole, Math.max(1, to - from)), start = Math.min(whole - width, Math.max(0, from));
    range = [start, start + width];
    paint();
  }
  const zoom = (centre, factor) => show(centre - (centre - range[0]) * factor, centre + (range[1] - centre) * factor);
  const wide = () => range[1] - range[0], middle = () => (range[0] + range[1]) / 2;
  const moment = event => range[0] + (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth * wide();
  const barAt = event => {
    const lane = lanes[Math.floor((event.clientY - canvas.getBoundingClientRect().top) / kLane)], us = moment(event);
    const near = wide() / canvas.clientWidth;
    return lane && (lane.bars.find(bar => bar.begin <= us && us < bar.end) ||
                    lane.bars.find(bar => bar.begin - near <= us && us < bar.end + near));
  };
  let from = null;
  canvas.onpointerdown = event => { from = moment(event); canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = event => { const bar = barAt(event); tip(event, bar ? wordsOfBar(bar, whole) : ''); };
  canvas.onpointerleave = event => tip(event, '');
  canvas.onpointerup = event => {
    const a = from, b = moment(event);
    from = null;
    if (a !== null && Math.abs(b - a) > wide() * 0.02) show(Math.min(a, b), Math.max(a, b));
  };
  canvas.ondblclick = () => show(0, whole);
  canvas.onwheel = event => {
    if (!event.ctrlKey && !event.shiftKey) return;  // plain turns scroll the page
    event.preventDefault();
    zoom(moment(event), event.deltaY + event.deltaX > 0 ? 1.3 : 1 / 1.3);
  };
  find.oninput = () => { wanted = find.value.trim().toLowerCase(); say(); paint(); };
  for (const [text, title, onclick] of [
    ['−', 'zoom out', () => zoom(middle(), 2)], ['+', 'zoom in', () => zoom(middle(), 0.5)],
    ['←', 'earlier', () => show(range[0] - wide() / 2, range[1] - wide() / 2)],
    ['→', 'later', () => show(range[0] + wide() / 2, range[1] + wide() / 2)],
    ['all', 'the whole step', () => show(0, whole)]]) {
    figure.querySelector('.tools').append(make('button', {text, title, type: 'button', onclick}));
  }
  figure.querySelector('.tools').append(find);
  figure.append(make('p', {class: 'soft kinds'}, ...kinds.map((kind, i) =>
    make('span', {}, make('i', {style: `background: var(--c${i % 9})`}), ' ' + kind + ' '))), note);
  new ResizeObserver(paint).observe(canvas);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paint);
  document.getElementById('theme').addEventListener('click', () => setTimeout(paint));
  say();
}
