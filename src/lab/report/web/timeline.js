// Active memory through a step: a stacked area per category over nodes or time, with zoom. Drag over
// a range to look closer, turn the wheel to zoom around the pointer, double-click for the whole.
'use strict';

function timeline(chart, tools) {
  const rows = rowsOf(chart.table), columns = columnsOf(chart.table);
  if (!rows.length) return [make('p', {class: 'soft', text: 'There are no rows to draw.'})];
  const categories = columns.filter(c => c.kind === 'bytes' && c.name !== 'total_bytes' && c.name !== 'measured_bytes')
    .map(c => c.name);
  const hasTime = rows.every(r => typeof r.time_ms === 'number');
  const height = 380, box = {left: 74, right: kWidth - 16, top: 44, bottom: height - 46};
  const svg = draw('svg', {viewBox: `0 0 ${kWidth} ${height}`, role: 'img', 'aria-label': chart.title});
  const high = Math.max(...rows.map(r => r.total_bytes)) * 1.04;
  const peak = rows.reduce((best, r, i) => r.total_bytes > rows[best].total_bytes ? i : best, 0);
  let byTime = false, range = null, note = null;

  const place = i => byTime ? rows[i].time_ms : i;
  const whole = () => [place(0), place(rows.length - 1)];
  const first = v => { let a = 0, b = rows.length - 1; while (a < b) { const m = (a + b) >> 1; if (place(m) < v) a = m + 1; else b = m; } return a; };

  // Where many nodes share a pixel the fullest stands for them, so that no peak is lost.
  function visible() {
    const from = Math.max(0, first(range[0]) - 1), to = Math.min(rows.length - 1, first(range[1]) + 1);
    const count = to - from + 1, limit = 700, out = [];
    for (let s = 0; s < Math.min(count, limit); ++s) {
      const a = from + Math.floor(s * count / Math.min(count, limit));
      const b = from + Math.floor((s + 1) * count / Math.min(count, limit));
      let best = a;
      for (let i = a; i < b; ++i) if (rows[i].total_bytes > rows[best].total_bytes) best = i;
      out.push(best);
    }
    return out;
  }

  function redraw() {
    svg.replaceChildren();
    const x = scale(range[0], range[1], box.left, box.right, false), y = scale(0, high, box.bottom, box.top, false, true);
    axes(svg, box, x, y, {x: byTime ? {title: 'host time since the step began', unit: 'ms'} : {title: 'kernel, in program order'},
                          y: {title: 'live bytes', kind: 'bytes'}});
    const nodes = visible(), clip = v => Math.min(box.right, Math.max(box.left, v));
    const base = nodes.map(() => 0);
    categories.forEach((name, c) => {
      const lower = nodes.map((i, k) => [clip(x.at(place(i))), y.at(base[k])]);
      nodes.forEach((i, k) => { base[k] += rows[i][name]; });
      const upper = nodes.map((i, k) => [clip(x.at(place(i))), y.at(base[k])]);
      svg.append(draw('path', {fill: colour(c), 'fill-opacity': 0.85, stroke: 'none',
        d: 'M' + [...upper, ...lower.reverse()].map(p => p[0].toFixed(1) + ' ' + p[1].toFixed(1)).join('L') + 'Z'}));
    });
    phases(x, clip);
    if (place(peak) >= range[0] && place(peak) <= range[1]) {
      const px = x.at(place(peak)), py = y.at(rows[peak].total_bytes), right = px > (box.left + box.right) / 2;
      svg.append(draw('circle', {cx: px, cy: py, r: 3.5, fill: 'var(--ink)'}),
        draw('text', {class: 'over', x: px + (right ? -8 : 8), y: py + 4, 'text-anchor': right ? 'end' : 'start',
                      text: `peak ${bytes(rows[peak].total_bytes)}`}));
    }
    svg.append(note = draw('g'));
    pointers(x);
  }

  function phases(x, clip) {
    let start = 0;
    for (let i = 1; i <= rows.length; ++i) {
      if (i < rows.length && rows[i].phase === rows[start].phase) continue;
      const a = clip(x.at(place(start))), b = clip(x.at(place(Math.min(i, rows.length - 1))));
      if (b - a > 1) {
        svg.append(draw('line', {class: 'axis', x1: a, x2: a, y1: box.top - 4, y2: box.bottom}));
        if (b - a > 70) svg.append(draw('text', {x: (a + b) / 2, y: box.top - 9, 'text-anchor': 'middle', text: rows[start].phase}));
      }
      start = i;
    }
  }

  function describe(i) {
    const row = rows[i], parts = categories.filter(c => row[c] > 0).sort((a, b) => row[b] - row[a]);
    return `${row.op} of ${row.path || 'the program'}, ${row.phase}\n${bytes(row.total_bytes)} predicted` +
      (row.measured_bytes === null ? '' : `, ${bytes(row.measured_bytes)} measured`) +
      parts.map(c => `\n${titleOf(columnOf(chart.table, c))}: ${bytes(row[c])}`).join('');
  }

  function pointers(x) {
    const value = event => {
      const r = svg.getBoundingClientRect(), px = (event.clientX - r.left) * kWidth / r.width;
      return range[0] + (Math.min(box.right, Math.max(box.left, px)) - box.left) / (box.right - box.left) * (range[1] - range[0]);
    };
    let from = null;
    svg.onpointerdown = event => { from = value(event); svg.setPointerCapture(event.pointerId); };
    svg.onpointermove = event => {
      const v = value(event);
      note.replaceChildren();
      if (from !== null) {
        const a = x.at(Math.min(from, v)), b = x.at(Math.max(from, v));
        note.append(draw('rect', {class: 'select', x: a, y: box.top, width: b - a, height: box.bottom - box.top}));
        return tip(event, '');
      }
      let i = first(v);
      if (i > 0 && v - place(i - 1) < place(i) - v) --i;
      note.append(draw('line', {class: 'cursor', x1: x.at(place(i)), x2: x.at(place(i)), y1: box.top, y2: box.bottom}));
      tip(event, describe(i));
    };
    svg.onpointerup = event => {
      const a = from, b = value(event);
      from = null;
      if (a !== null && Math.abs(b - a) > (range[1] - range[0]) * 0.01) zoomTo(Math.min(a, b), Math.max(a, b));
      else note.replaceChildren();
    };
    svg.onpointerleave = event => { if (from === null) { note.replaceChildren(); tip(event, ''); } };
    svg.ondblclick = () => zoomTo(...whole());
    svg.onwheel = event => {
      if (!event.ctrlKey && !event.shiftKey) return;  // plain turns scroll the page
      event.preventDefault();
      zoomAround(value(event), event.deltaY + event.deltaX > 0 ? 1.3 : 1 / 1.3);
    };
  }

  function zoomTo(a, b) {
    const [low, high] = whole(), least = (high - low) / rows.length * 4;
    if (b - a < least) { const m = (a + b) / 2; a = m - least / 2; b = m + least / 2; }
    range = [Math.max(low, a), Math.min(high, b)];
    redraw();
  }
  const zoomAround = (centre, factor) => zoomTo(centre - (centre - range[0]) * factor, centre + (range[1] - centre) * factor);
  const middle = () => (range[0] + range[1]) / 2, width = () => range[1] - range[0];
  const pan = share => {
    const [low, high] = whole(), w = width();
    const from = Math.max(low, Math.min(high - w, range[0] + share * w));
    zoomTo(from, from + w);
  };
  const button = (text, title, onclick) => tools.append(make('button', {text, title, type: 'button', onclick}));
  button('−', 'zoom out', () => zoomAround(middle(), 2));
  button('+', 'zoom in', () => zoomAround(middle(), 0.5));
  button('←', 'earlier', () => pan(-0.5));
  button('→', 'later', () => pan(0.5));
  button('peak', 'around the fullest moment', () => { const w = (whole()[1] - whole()[0]) / 40; zoomTo(place(peak) - w, place(peak) + w); });
  button('all', 'the whole step', () => zoomTo(...whole()));
  if (hasTime) button('by time', 'by node or by time', event => {
    byTime = !byTime;
    event.target.textContent = byTime ? 'by node' : 'by time';
    zoomTo(...whole());
  });
  range = whole();
  redraw();
  return [svg, legend(categories.map(c => titleOf(columnOf(chart.table, c)))),
    make('p', {class: 'soft', text: 'Drag over a range to look closer; Ctrl or Shift with the wheel zooms; double-click shows all.'})];
}
