// What is drawn of the rows of `bench ep`: a bar a row, of one mode, scaling, workload, ranks and tokens each.

const kPhaseGroups = {
  'router and plan': ['router', 'plan'], dispatch: ['dispatch'], experts: ['experts'], combine: ['combine'],
  attention: ['attention'], 'dense, embedding, loss': ['dense', 'embed', 'loss'], reduce: ['reduce'],
  optimizer: ['optimizer'], 'data and other': ['data', 'other']};
const kBars = [
  {title: 'Tokens per second', note: 'all ranks',
   parts: ['tokens/s'], values: row => [row.tokens_per_s], text: readable},
  {title: 'Time', note: "the slowest rank's median",
   parts: ['median'], values: row => [row.step_ms], text: milliseconds},
  {title: 'Time by phase', note: 'mean of samples and ranks',
   parts: Object.keys(kPhaseGroups), stacked: true, text: milliseconds,
   values: row => Object.values(kPhaseGroups).map(phases => phases.reduce((ms, phase) => ms + row['ms_' + phase], 0))},
  {title: 'Memory of a rank',
   note: 'what the point added, after its warm-up; the largest rank, of shared pages its own',
   parts: ['memory'], values: row => [row.memory_bytes], text: bytes},
  {title: 'Bytes of a step', note: "all ranks; rows through a node's shared memory are no messages",
   parts: ['messages: through MPI', 'rows: a copy for each expert of another rank'],
   values: row => [row.message_bytes, row.row_bytes], text: bytes},
  {title: 'Imbalance', note: 'rows over the mean, of experts and of ranks; mean of samples',
   parts: ['fullest expert', 'fullest rank'], values: row => [row.expert_load, row.rank_load],
   text: load => readable(load) + 'x'},
];
const alike = (a, b, ...fields) => fields.every(field => a[field] === b[field]);
/// What tells a row apart from the others; what all share is left out.
function label_of(row, rows) {
  const differs = field => rows.some(other => other[field] !== rows[0][field]);
  const asked = ['0', 'force'].includes(row.gmm);
  return 'ep ' + row.ep + ', gmm ' + row.gmm + (differs('dispatcher') ? ', ' + row.dispatcher : '') +
    (differs('dtype') ? ', ' + row.dtype : '') + (asked ? '' : row.gmm_applied ? ' (grouped)' : ' (loop)');
}
/// Of each different `fields` the row with the shortest step, in the order of these fields.
function fastest(rows, ...fields) {
  const best = [];
  for (const row of rows) {
    const i = best.findIndex(other => alike(row, other, ...fields));
    if (i < 0) best.push(row);
    else if (row.step_ms < best[i].step_ms) best[i] = row;
  }
  const numbers = fields.filter(field => typeof rows[0][field] === 'number');
  return best.sort((a, b) => numbers.map(field => a[field] - b[field]).find(difference => difference !== 0) || 0);
}
function draw_workloads(place, view, rows) {
  const table = section(place, 'Routings: ' + view.title,
    'the fastest row of each ep; rows of the fullest expert and rank over the mean, and the Gini coefficient of ' +
    'rows: 0 even, towards 1 all on one', 'wide').appendChild(make('table', 'numbers'));
  const add = (cell, texts) => table.appendChild(make('tr')).append(...texts.map(text => make(cell, '', text)));
  add('th', ['workload', 'ep', 'ms', 'p10 to p90', 'fullest expert', 'fullest rank', 'Gini of experts',
             'Gini of ranks']);
  for (const row of fastest(rows, 'workload', 'ep').sort((a, b) => a.workload.localeCompare(b.workload)))
    add('td', [row.workload, row.ep, readable(row.step_ms),
               readable(row.step_ms_p10) + ' to ' + readable(row.step_ms_p90),
               ...[row.expert_load, row.rank_load, row.expert_gini, row.rank_gini].map(value => readable(value))]);
}
function draw_sweep(place) {
  for (const view of data.views) {
    const of_view = data.rows.filter(row => alike(row, view, 'mode', 'scaling'));
    const in_world = of_view.filter(row => alike(row, view, 'ranks', 'tokens', 'threads'));
    const rows = in_world.filter(row => alike(row, view, 'workload')).sort((a, b) => a.ep - b.ep);
    for (const {title, note, values, ...drawing} of kBars)
      safely(() => draw_bars(section(place, title + ': ' + view.title, note), {
        ...drawing, bars: rows.map(row => ({label: label_of(row, rows), values: values(row)}))}));
    const worlds = fastest(of_view.filter(row => alike(row, view, 'workload')), 'ranks', 'ep');
    if (worlds[0].ranks !== worlds[worlds.length - 1].ranks)
      safely(() => draw_bars(section(place, 'More ranks: ' + view.mode + ', ' + view.scaling + ' scaling',
        'tokens per second by ranks; the fastest row of each ep'), {
        parts: ['tokens/s'], text: readable, bars: worlds.map(({ranks, ep, tokens_per_s}) => (
          {label: ranks + (ranks === 1 ? ' rank' : ' ranks') + ', ep ' + ep, values: [tokens_per_s]}))}));
    if (in_world.some(row => row.workload !== view.workload)) safely(() => draw_workloads(place, view, in_world));
  }
}
