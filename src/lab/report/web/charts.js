// What a page adds to the drawings in it: notes that follow the pointer, and zoom into timelines.
'use strict';

// --- notes -----------------------------------------------------------------------------------------

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

// The titles of shapes, which a browser would show late and small.
function tipsOfCharts() {
  for (const title of document.querySelectorAll('figure svg title')) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  for (const svg of document.querySelectorAll('figure:not([data-kind=timeline]) svg')) {
    svg.addEventListener('pointermove', event => tip(event, event.target.dataset.tip || ''));
    svg.addEventListener('pointerleave', event => tip(event, ''));
  }
}

// --- timelines -------------------------------------------------------------------------------------

// The x axis of the plot counts kernels, whatever its ticks say, so zooming is a change of its viewBox. Drag over a range to
// look closer, turn the wheel with Ctrl or Shift to zoom around the pointer, double-click for all.
function zoomTimeline(figure) {
  const name = figure.dataset.table, rows = rowsOf(name);
  const drawings = [...figure.querySelectorAll('.wide > svg, .narrow > svg')];
  const plots = drawings.map(svg => svg.querySelector('.plot'));
  const steps = plots[0].viewBox.baseVal.width, high = plots[0].viewBox.baseVal.height;
  const note = make('p', {class: 'soft', 'aria-live': 'polite'});
  let range = [0, steps];

  const rowAt = step => Math.min(rows.length - 1, Math.max(0, Math.floor(step * rows.length / steps)));
  const what = rows.length && rows[0].op === 'event' ? 'Moments' : 'Kernels';
  const stretch = (first, last) => `${what} ${first + 1} to ${last + 1} of ${rows.length}` +
    (typeof rows[first].time_ms !== 'number' ? '.' :
      `, ${rows[first].time_ms.toFixed(3)} to ${rows[last].time_ms.toFixed(3)} ms after its begin.`);
  function show(from, to) {
    const least = Math.min(steps, 8), width = Math.min(steps, Math.max(least, to - from));
    const start = Math.min(steps - width, Math.max(0, (from + to - width) / 2));
    range = [start, start + width];
    const isWhole = width >= steps;
    plots.forEach(plot => plot.setAttribute('viewBox', `${range[0]} 0 ${width} ${high}`));
    drawings.forEach(svg => svg.querySelectorAll('.whole').forEach(g => { g.style.display = isWhole ? '' : 'none'; }));
    note.textContent = isWhole ? 'Drag over a range to look closer; Ctrl or Shift with the wheel ' +
      'zooms; double-click shows all.' : stretch(rowAt(range[0]), rowAt(range[1] - 1e-6));
  }

  function describe(row) {
    const parts = columnsOf(name).filter(c => c.kind === 'bytes' && row[c.name] > 0 &&
      c.name !== 'total_bytes' && c.name !== 'measured_bytes').sort((a, b) => row[b.name] - row[a.name]);
    return `${row.op} of ${row.path || 'the program'}, ${row.phase}\n${bytes(row.total_bytes)} predicted` +
      (row.measured_bytes === null ? '' : `, ${bytes(row.measured_bytes)} measured`) +
      parts.map(c => `\n${titleOf(c)}: ${bytes(row[c.name])}`).join('');
  }

  plots.forEach((plot, i) => {
    const share = event => {
      const box = plot.getScreenCTM(), x = (event.clientX - box.e) / box.a;  // in kernels
      return Math.min(range[1], Math.max(range[0], x));
    };
    let from = null;
    const svg = drawings[i];
    svg.onpointerdown = event => { from = share(event); svg.setPointerCapture(event.pointerId); };
    svg.onpointermove = event => tip(event, describe(rows[rowAt(share(event))]));
    svg.onpointerleave = event => tip(event, '');
    svg.onpointerup = event => {
      const a = from, b = share(event);
      from = null;
      if (a !== null && Math.abs(b - a) > (range[1] - range[0]) * 0.02) show(Math.min(a, b), Math.max(a, b));
    };
    svg.ondblclick = () => show(0, steps);
    svg.onwheel = event => {
      if (!event.ctrlKey && !event.shiftKey) return;  // plain turns scroll the page
      event.preventDefault();
      zoom(share(event), event.deltaY + event.deltaX > 0 ? 1.3 : 1 / 1.3);
    };
  });

  const zoom = (centre, factor) => show(centre - (centre - range[0]) * factor, centre + (range[1] - centre) * factor);
  const width = () => range[1] - range[0], middle = () => (range[0] + range[1]) / 2;
  const pan = share => show(range[0] + share * width(), range[1] + share * width());
  const peak = rows.reduce((best, r, i) => r.total_bytes > rows[best].total_bytes ? i : best, 0) * steps / rows.length;
  for (const [text, title, onclick] of [
    ['−', 'zoom out', () => zoom(middle(), 2)], ['+', 'zoom in', () => zoom(middle(), 0.5)],
    ['←', 'earlier', () => pan(-0.5)], ['→', 'later', () => pan(0.5)],
    ['peak', 'around the fullest moment', () => show(peak - steps / 40, peak + steps / 40)],
    ['all', 'the whole step', () => show(0, steps)]]) {
    figure.querySelector('.tools').append(make('button', {text, title, type: 'button', onclick}));
  }
  figure.append(note);
  show(0, steps);
}
