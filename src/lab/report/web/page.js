// Fills the places of the tables from what the page carries: `report`, the JSON of the run, with
// every figure and, of each column, how it is shown.
'use strict';

let report = {tables: {}};  // until it is unpacked

// The page carries it as base64 of gzip.
async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), c => c.charCodeAt(0));
  const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return byRow(JSON.parse(await new Response(text).text()));
}

// Rows again, of what the page carries by column (report/by_column.h).
function byRow(result) {
  const undone = steps => { let last = 0; return steps.map(step => last += step); };
  const rows = packed => {
    if (!packed || Array.isArray(packed)) return packed;
    const cells = Object.entries(packed.cells)
      .map(([name, list]) => [name, Array.isArray(list) ? list : undone(list.steps)]);
    return cells[0][1].map((_, i) => Object.fromEntries(cells.map(([name, list]) => [name, list[i]])));
  };
  for (const table of [result, ...Object.values(result.tables || {})]) table.rows = rows(table.rows);
  result.rows ||= result.tables[result.table].rows;
  return result;
}

// Marks that would show the characters beside them in another order are shown themselves.
function visible(value) {
  if (typeof value !== 'string') return value;
  return value.replace(/[\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]/g,
                       c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'text') node.textContent = visible(value);
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.map(visible));
  return node;
}

const rowsOf = name => (report.tables[name] || {rows: []}).rows;
// Of an object's names those that are numbers come first, whatever the table's order; keys of rows
// are words, and stand before them.
const columnsOf = name => Object.entries((report.tables[name] || {columns: {}}).columns)
  .map(([column, facts]) => ({name: column, ...facts}))
  .sort((a, b) => /^\d+$/.test(a.name) - /^\d+$/.test(b.name));
// As is_shown() (report/display.cpp) has it.
function isShown(column, rows) {
  if (column.kind === 'reals' || column.kind === 'structured' || column.shown === 'no') return false;
  const differs = row => JSON.stringify(row[column.name]) !== JSON.stringify(rows[0][column.name]);
  return column.shown !== 'if it varies' || rows.some(differs);
}
const columnOf = (table, name) => columnsOf(table).find(c => c.name === name) || {name};
const anchorOf = name => 'table-' + name.replace(/[^A-Za-z0-9_.-]+/g, '-');

// --- figures as people read them -----------------------------------------------------------------

const kUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

function unitOf(value) {
  let unit = 0;
  for (let size = Math.abs(value); size >= 1024 && unit + 1 < kUnits.length; size /= 1024) ++unit;
  return unit;
}

function bytes(value) {
  const unit = unitOf(value);
  return (unit === 0 ? value : (value / 1024 ** unit).toFixed(2)) + ' ' + kUnits[unit];
}

// What is not zero is not shown as zero: "< 0.001".
function fixed(value, digits) {
  const least = 10 ** -digits;
  if (value === 0 || Math.abs(value) >= least / 2) return grouped(value.toFixed(digits));
  return (value > 0 ? '< ' : '> -') + least.toFixed(digits);
}

function grouped(text) {
  const whole = text.match(/^-?\d+/)[0];
  return whole.length > 4 ? whole.replace(/\B(?=(\d{3})+(?!\d))/g, ',') + text.slice(whole.length) : text;
}

// How the numbers of a column are shown: all in one unit, with as many decimals as give the middle
// one of them three digits.
function formatOf(values, column) {
  const sizes = values.filter(v => typeof v === 'number' && v !== 0).map(Math.abs).sort((a, b) => a - b);
  const middle = sizes.length ? sizes[sizes.length >> 1] : 0;
  if (column.kind === 'bytes') {
    const unit = unitOf(sizes.length ? sizes[sizes.length - 1] : 0);
    const digits = unit === 0 ? 0 : Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(middle / 1024 ** unit || 1))));
    return {unit: kUnits[unit], show: v => fixed(v / 1024 ** unit, digits)};
  }
  if (column.kind === 'int') return {unit: column.unit, show: v => grouped(String(v))};
  if (column.kind !== 'real') return {unit: column.unit, show: v => v === true ? 'yes' : v === false ? 'no' : String(v)};
  if (sizes.length && (sizes[sizes.length - 1] >= 1e7 || middle < 1e-3)) {
    return {unit: column.unit, show: v => v === 0 ? '0' : v.toExponential(2)};
  }
  const digits = Math.max(0, Math.min(4, 2 - Math.floor(Math.log10(middle || 1))));
  return {unit: column.unit, show: v => fixed(v, digits)};
}

const titleOf = column => column.title || column.name;

// --- downloads -------------------------------------------------------------------------------------

function save(name, type, text) {
  const link = make('a', {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csvOf(name) {
  const columns = columnsOf(name).map(c => c.name);
  const cell = value => {
    if (value === null || value === undefined) return '';
    const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
    return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  };
  const lines = [columns.map(cell)];
  for (const row of rowsOf(name)) lines.push(columns.map(c => cell(row[c])));
  return lines.map(line => line.join(',')).join('\r\n') + '\r\n';
}

// --- tables ----------------------------------------------------------------------------------------

// Short texts stay on one line.
function cellOf(text, isNumber) {
  const width = isNumber ? 'number' : text.length <= 40 ? 'short' : text.length <= 120 ? 'long' : 'longer';
  return make('td', {class: width}, ...withWholeFlags(text));
}

// A flag and its value stay on one line.
function withWholeFlags(text) {
  return visible(text).split(/((?<![^ ])--[^ ]+(?: [^- ][^ ]*)?)/)
    .map(part => part.startsWith('--') ? make('span', {class: 'flag', text: part}) : part);
}

// Columns with one value for all rows stand in a line below the table.
function tableBlock(name) {
  const table = report.tables[name];
  const shown = columnsOf(name).filter(c => isShown(c, table.rows));
  const isNumber = c => c.kind === 'int' || c.kind === 'real' || c.kind === 'bytes';
  const format = new Map(shown.map(c => [c, formatOf(table.rows.map(row => row[c.name]), c)]));
  const words = (value, c) => value === null || value === undefined ? '–' : format.get(c).show(value);
  const isSame = c => table.rows.length > 1 && c.kind !== 'real' && c.kind !== 'bytes' &&
    table.rows.every(row => row[c.name] === table.rows[0][c.name]);
  const columns = shown.filter(c => !isSame(c));
  const same = shown.filter(c => isSame(c) && table.rows[0][c.name] !== null)
    .map(c => `${titleOf(c)} ${words(table.rows[0][c.name], c)}`).join(', ');
  const body = make('tbody');
  const order = table.rows.map((row, index) => ({row, index}));
  const fill = () => body.replaceChildren(...order.map(({row, index}) => make(
      'tr', {id: anchorOf(name) + '-' + (index + 1)},
      ...columns.map(c => cellOf(words(row[c.name], c), isNumber(c))))));
  let sorted = null, down = false;
  const sortBy = column => {
    down = sorted === column ? !down : isNumber(column);
    sorted = column;
    order.sort((a, b) => {
      const x = a.row[column.name], y = b.row[column.name];
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : x > y ? 1 : a.index - b.index) * (down ? -1 : 1);
    });
    fill();
  };
  fill();
  const head = make('tr', {}, ...columns.map(c => {
    const unit = format.get(c).unit ? ` (${format.get(c).unit})` : '';
    return make('th', {class: isNumber(c) ? 'number' : '', scope: 'col', text: titleOf(c) + unit,
                       title: c.description || 'sort', onclick: () => sortBy(c)});
  }));
  const notes = [...(same ? ['In all rows: ' + same + '.'] : []), ...(table.notes || [])];
  const file = name.replace(/[^A-Za-z0-9_.-]+/g, '-');
  const block = make('div', {class: 'block', id: anchorOf(name)},
    make('div', {class: 'head soft'},
      make('button', {text: 'CSV', type: 'button', onclick: () => save(file + '.csv', 'text/csv', csvOf(name))}),
      make('button', {text: 'JSON', type: 'button',
        onclick: () => save(file + '.json', 'application/json', JSON.stringify(table, null, 2))})),
    make('div', {class: 'scroll', tabindex: '0'}, make('table', {},
      ...(notes.length ? [make('caption', {class: 'notes'}, ...notes.map(text => make('div', {text})))] : []),
      make('thead', {}, head), body)));
  return block;
}

// The rows that an answer rests on: its link names a table, and rows from 0.
function markRows(link) {
  document.querySelectorAll('tr.marked').forEach(row => row.classList.remove('marked'));
  const name = link.dataset.table, rows = link.dataset.rows.split(',').map(Number);
  const place = [...document.querySelectorAll('.place')].find(p => p.dataset.table === name);
  if (!place) return;
  for (let d = place.closest('details'); d; d = d.parentNode.closest('details')) d.open = true;
  fill(place);
  const found = rows.map(index => document.getElementById(anchorOf(name) + '-' + (index + 1)));
  found.forEach(row => row && row.classList.add('marked'));
  if (found[0]) found[0].scrollIntoView({block: 'center'});
}

// --- the page --------------------------------------------------------------------------------------

// A table is laid out when it is first looked at.
function fill(place) {
  if (!place.firstChild) place.append(tableBlock(place.dataset.table));
}

function fillTables() {
  for (const place of document.querySelectorAll('.place')) {
    place.closest('details').addEventListener('toggle', () => fill(place));
  }
}

function fillEnvironment() {
  const rows = Object.entries(report.environment || {})
    .filter(([, value]) => value !== null)
    .map(([key, value]) => make('tr', {}, make('td', {text: key}),
      make('td', {text: typeof value === 'object' ? JSON.stringify(value) : String(value)})));
  document.getElementById('environment').append(
    make('div', {class: 'scroll', tabindex: '0'}, make('table', {}, make('tbody', {}, ...rows))));
}

// Without a choice the page follows the browser.
function offerTheme() {
  const dark = window.matchMedia('(prefers-color-scheme: dark)'), data = document.documentElement.dataset;
  document.getElementById('theme').addEventListener('click', () => {
    data.theme = (data.theme || (dark.matches ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark';
  });
}

function listen() {
  for (const link of document.querySelectorAll('.rests a')) {
    link.addEventListener('click', event => { event.preventDefault(); markRows(link); });
  }
  for (const pre of document.querySelectorAll('pre.command')) {
    const text = pre.textContent;
    pre.append(make('button', {text: 'copy', type: 'button', onclick: async event => {
      await navigator.clipboard.writeText(text);
      event.target.textContent = 'copied';
    }}));
  }
  // On paper answers are whole.
  window.addEventListener('beforeprint', () =>
    document.querySelectorAll('.card details, details.further').forEach(d => { d.open = true; }));
}

async function build() {
  offerTheme();
  listen();
  tipsOfCharts();
  const giveUp = reason => {
    document.getElementById('json').hidden = true;  // it would save nothing
    document.getElementById('tables').append(make('p', {text: reason + ' the tables of this page ' +
      'cannot be unpacked. A JSON file that was written with it has them.'}));
  };
  if (!('DecompressionStream' in window)) return giveUp('This browser is from before 2023:');
  try {
    report = await unpack('report');
    report.tables ||= {[report.table]: report};  // a result of one table has it at the top
  } catch (error) {
    return giveUp('This file is damaged (' + error.message + '):');
  }
  // "tracestep.study/2" is saved as study.json.
  document.getElementById('json').addEventListener('click', () =>
    save(report.schema.split(/[./]/)[1] + '.json', 'application/json',
      JSON.stringify(report, null, 2)));
  fillTables();
  fillEnvironment();
  for (const figure of document.querySelectorAll('figure[data-kind=timeline]')) zoomTimeline(figure);
  for (const figure of document.querySelectorAll('figure[data-kind=work]')) drawWork(figure);
}
