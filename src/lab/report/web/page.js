// Fills the places of the page from what it carries: `report`, the JSON of the run, with every
// figure, and `layout`, which says how columns are shown.
'use strict';

let report = {tables: {}};  // until it is unpacked
const layout = JSON.parse(document.getElementById('layout').textContent);

// The page carries it as base64 of gzip.
async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), c => c.charCodeAt(0));
  const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(text).text());
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
const columnsOf = name => (layout.tables[name] || {columns: []}).columns;
const columnOf = (table, name) => columnsOf(table).find(c => c.name === name) || {name};
const anchorOf = name => 'table-' + name.replace(/[^A-Za-z0-9_.-]+/g, '-');

// --- figures as people read them -----------------------------------------------------------------

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let size = Math.abs(value), unit = 0;
  while (size >= 1024 && unit + 1 < units.length) { size /= 1024; ++unit; }
  return (value < 0 ? '-' : '') + (unit === 0 ? size : size.toFixed(2)) + ' ' + units[unit];
}

function significant(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) return value.toExponential(3).replace(/\.?0+e/, 'e');
  return String(Number(value.toPrecision(4)));
}

// What is not zero is not shown as zero: "< 0.001".
function fixed(value, digits) {
  const least = 10 ** -digits;
  if (value === 0 || Math.abs(value) >= least / 2) return value.toFixed(digits);
  return (value > 0 ? '< ' : '> -') + least.toFixed(digits);
}

function whole(value) {
  return Math.abs(value) < 10000 ? String(value)
                                 : String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

function shown(value, column) {
  if (value === null || value === undefined) return '–';
  switch (column.kind) {
    case 'bytes': return bytes(value);
    case 'int': return whole(value);
    case 'real': return column.digits >= 0 ? fixed(value, column.digits) : significant(value);
    case 'bool': return value ? 'yes' : 'no';
    default: return String(value);
  }
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
  return make('td', {class: isNumber ? 'number' : text.length <= 40 ? 'short' : text.length <= 120 ? 'long' : 'longer', text});
}

const kPrintedColumns = 9, kPrintedRows = 12;
function tableBlock(name) {
  const table = report.tables[name];
  const columns = columnsOf(name).filter(c => !c.hidden);
  const isNumber = c => c.kind === 'int' || c.kind === 'real' || c.kind === 'bytes';
  const body = make('tbody');
  const order = table.rows.map((row, index) => ({row, index}));
  const fill = () => body.replaceChildren(...order.map(({row, index}) => make(
      'tr', {id: anchorOf(name) + '-' + (index + 1)},
      ...columns.map(c => cellOf(shown(row[c.name], c), isNumber(c))))));
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
    const unit = c.unit && c.kind !== 'bytes' ? ` (${c.unit})` : '';
    return make('th', {class: isNumber(c) ? 'number' : '', scope: 'col', text: titleOf(c) + unit,
                       title: c.description || 'sort', onclick: () => sortBy(c)});
  }));
  const file = name.replace(/[^A-Za-z0-9_.-]+/g, '-');
  // What paper has no room for is left to the screen.
  const isLarge = columns.length > kPrintedColumns || table.rows.length > kPrintedRows;
  const block = make('div', {class: isLarge ? 'block large' : 'block', id: anchorOf(name)},
    make('div', {class: 'head'}, make('h3', {text: table.title || name}),
      make('span', {class: 'soft'}, `${table.rows.length} rows · ${name} `,
        make('button', {text: 'CSV', type: 'button', onclick: () => save(file + '.csv', 'text/csv', csvOf(name))}), ' ',
        make('button', {text: 'JSON', type: 'button',
          onclick: () => save(file + '.json', 'application/json', JSON.stringify(table, null, 2))}))),
    make('div', {class: 'scroll', tabindex: '0'}, make('table', {}, make('thead', {}, head), body)));
  if (table.notes) {
    block.append(make('ul', {class: 'notes'}, ...table.notes.map(text => make('li', {text}))));
  }
  return block;
}

function markRows(ref) {
  document.querySelectorAll('tr.marked').forEach(row => row.classList.remove('marked'));
  const place = [...document.querySelectorAll('.place')].find(p => p.dataset.table === ref.table);
  if (place) {
    if (place.closest('details')) place.closest('details').open = true;
    fill(place);
  }
  for (const index of ref.rows) {
    const row = document.getElementById(anchorOf(ref.table) + '-' + (index + 1));
    if (row) row.classList.add('marked');
  }
  const first = document.getElementById(anchorOf(ref.table) + '-' + (ref.rows[0] + 1));
  if (first) first.scrollIntoView({block: 'center'});
}

// --- answers ---------------------------------------------------------------------------------------

// "1, 4, 7 to 12"
function listOf(rows) {
  const out = [];
  for (let i = 0; i < rows.length;) {
    let end = i + 1;
    while (end < rows.length && rows[end] === rows[end - 1] + 1) ++end;
    if (end - i <= 2) end = i + 1;
    out.push(end - i > 1 ? `${rows[i]} to ${rows[end - 1]}` : String(rows[i]));
    i = end;
  }
  return out.join(', ');
}

// A figure, a comparison or a quotation shows its formula when it is pointed at.
function pieceOf(piece) {
  const formula = piece.figure || piece.relation || piece.quote;
  return formula ? make('span', {class: 'claim', title: formula, text: piece.text}) : piece.text;
}

// An answer's own table, its head first.
function linesOf(lines) {
  if (!lines.length) return [];
  const row = (cells, tag) =>
    make('tr', {}, ...cells.map(pieces => make(tag, {}, ...pieces.map(pieceOf))));
  return [make('div', {class: 'scroll', tabindex: '0'}, make('table', {},
    make('thead', {}, row(lines[0], 'th')),
    make('tbody', {}, ...lines.slice(1).map(cells => row(cells, 'td')))))];
}

function answerCard(answer) {
  const byTable = new Map();
  for (const {table, row} of answer.rows) {
    if (!byTable.has(table)) byTable.set(table, {table, rows: []});
    byTable.get(table).rows.push(row);
  }
  const links = [...byTable.values()].map(ref => make('a', {
    href: '#' + anchorOf(ref.table), text: `${ref.table} ${listOf(ref.rows.map(r => r + 1))}`,
    onclick: event => { event.preventDefault(); markRows(ref); }}));
  const standing = answer.refused ? 'refused' : answer.standing.replace(' ', '-');
  return make('article', {class: 'answer ' + standing, id: 'answer-' + answer.id},
    make('h4', {text: (answer.number ? answer.number + ' ' : '') + answer.question}),
    make('p', {}, ...answer.pieces.map(pieceOf)), ...linesOf(answer.lines),
    make('p', {class: 'rests'}, answer.refused ? 'Looked at: ' : 'Rests on: ',
         ...(links.length ? links : ['no table']),
         ...(answer.refused || answer.standing === 'sound' ? [] : [
           `(${answer.standing}${answer.worst ? ': ' + answer.worst : ''})`])),
    ...(answer.doubts ? [make('details', {}, make('summary', {text: 'in doubt'}),
                              make('p', {text: answer.doubts}))] : []),
    make('p', {}, make('code', {text: answer.command})));
}

function fillAnswers() {
  const section = document.getElementById('answers');
  const rows = rowsOf('answers');
  const refused = rows.filter(a => a.refused).length;
  section.append(make('h2', {text: 'Questions and answers'}),
    make('p', {text: `${rows.length - refused} of ${rows.length} questions are answered ` +
    'from this run\'s figures; a grey edge marks those that its data do not support. The edge of the ' +
    'others is that of the worst row they rest on: green for sound ones, yellow for a single sample ' +
    'or where the validity checker doubts, red where it finds a row invalid. The rows that an answer ' +
    'rests on are marked in their tables when you follow its link; point at a figure or a comparison ' +
    'to see how it is made from them.'}));
  for (const topic of new Set(rows.map(a => a.topic))) {
    section.append(make('h3', {text: topic}),
      make('div', {class: 'answers'}, ...rows.filter(a => a.topic === topic).map(answerCard)));
  }
}

// --- the page --------------------------------------------------------------------------------------

// A table is laid out when it is first looked at.
function fill(place) {
  if (!place.firstChild) place.append(tableBlock(place.dataset.table));
}

function fillTables() {
  for (const place of document.querySelectorAll('.place')) {
    const data = place.closest('details');
    if (data) data.addEventListener('toggle', () => fill(place));
    else fill(place);
  }
}

function fillEnvironment() {
  const rows = Object.entries(report.environment || {})
    .filter(([, value]) => value !== null)
    .map(([key, value]) => make('tr', {}, make('td', {text: key}),
      make('td', {text: typeof value === 'object' ? JSON.stringify(value) : String(value)})));
  document.getElementById('environment').append(make('h2', {text: 'Where this was measured'}),
    make('div', {class: 'scroll', tabindex: '0'}, make('table', {}, make('tbody', {}, ...rows))));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function followTheme() {
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  setTheme(dark.matches ? 'dark' : 'light');
  dark.addEventListener('change', event => setTheme(event.matches ? 'dark' : 'light'));
  document.getElementById('theme').addEventListener('click', () =>
    setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
}

async function build() {
  followTheme();
  const giveUp = reason => {
    document.getElementById('json').hidden = true;  // it would save nothing
    document.getElementById('answers').append(make('p', {text: reason + ' the tables and answers of ' +
      'this page cannot be unpacked; study.md and study.json beside it have them.'}));
  };
  if (!('DecompressionStream' in window)) return giveUp('This browser is from before 2023:');
  try {
    report = await unpack('report');
  } catch (error) {
    return giveUp('This file is damaged (' + error.message + '):');
  }
  document.getElementById('json').addEventListener('click', () =>
    save('study.json', 'application/json', JSON.stringify(report, null, 2)));
  if (report.tables.answers) fillAnswers();
  fillTables();
  fillEnvironment();
  tipsOfCharts();
  for (const figure of document.querySelectorAll('figure[data-kind=timeline]')) zoomTimeline(figure);
}
