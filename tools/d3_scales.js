#!/usr/bin/env node
// Writes tests/lab/report/data/d3_scales.csv: the ticks that d3 gives for random ranges, which
// tests/lab/report/scale_test.cpp holds ours against. Needs Debian's node-d3.
//   tools/d3_scales.js > tests/lab/report/data/d3_scales.csv
'use strict';

const d3 = require('/usr/share/nodejs/d3/dist/d3.js');

// A generator of its own, so that every run writes the same file.
let state = 20250117;
function random() {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
}
const between = (low, high) => low + (high - low) * random();
const count = () => 2 + Math.floor(random() * 12);
const short = value => Number(value.toPrecision(6));

function row(kind, low, high, n, ticks, labels) {
  console.log([kind, low, high, n, ticks.map(t => Number(t.toPrecision(12))).join(' '), labels].join(','));
}

console.log('kind,low,high,count,ticks,labelled');
for (let i = 0; i < 1500; ++i) {
  const size = 10 ** between(-9, 12), low = short(random() < 0.4 ? 0 : between(-1, 1) * size);
  const high = short(low + between(0.001, 1) * size), n = count();
  if (high > low) row('linear', low, high, n, d3.ticks(low, high, n), '');
}
for (const base of [10, 2]) {
  for (let i = 0; i < 750; ++i) {
    const low = short(base ** between(-12, 20)), n = count();
    const high = short(low * base ** (random() < 0.5 ? between(0.05, 3) : between(3, 25)));
    const scale = d3.scaleLog().base(base).domain([low, high]), ticks = scale.ticks(n);
    // d3 labels as if its default of ten ticks were asked for, so only where that gives the same ones.
    const format = scale.tickFormat(n, v => String(v)), isSame = scale.ticks().length === ticks.length;
    row('log' + base, low, high, n, ticks, isSame ? ticks.map(t => format(t) === '' ? 0 : 1).join('') : '');
  }
}
