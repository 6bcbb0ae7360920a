// What is drawn of runs: the charts by their fields in metrics.jsonl.

const kCharts = [
  {title: 'Speed', note: 'tokens of all ranks per second of wall time', fields: {tokens_per_s: 'tokens/s'},
   label: 'tokens per second', from_zero: true},
  {title: 'Gradient norm', note: 'before clipping', fields: {grad_norm: 'gradient norm'}, label: '2-norm',
   from_zero: true},
  {title: 'Learning rate', note: 'of each step', fields: {learning_rate: 'learning rate'}, label: '', from_zero: true},
  {title: 'Load-balancing loss', note: 'mean of the micro-batches', fields: {aux_loss: 'aux loss'}, label: ''},
];
/// Of one run both losses are a chart, of several each is one.
function loss_charts() {
  const label = data.runs[0].loss_unit;
  const training = 'each step', validation = 'the held-out text';
  const restarts = data.runs.some(run => run.restarts.length > 0) ?
    '; dashed lines: where a job ended and the run was started again' : '';
  return data.runs.length === 1 ?
    [{title: 'Loss', note: training + ', and ' + validation + restarts, label,
      fields: {loss: 'training', val_loss: 'validation'}}] :
    [{title: 'Training loss', note: training + restarts, label, fields: {loss: ''}},
     {title: 'Validation loss', note: validation, label, fields: {val_loss: ''}}];
}
function draw_lines(place) {
  for (const {title, note, fields, label, from_zero} of [...loss_charts(), ...kCharts]) {
    const lines = [];
    data.runs.forEach((run, r) => {
      for (const [field, name] of Object.entries(fields))
        if (run.lines[field])
          lines.push({run: r, field, name: data.runs.length === 1 ? name : run.name, sparse: field === 'val_loss'});
    });
    if (lines.length > 0) safely(() => new LineChart(section(place, title, note), {label, from_zero, lines}));
  }
}

const seen = (value, unit = '') => readable(value) + unit + ' (most seen)';
/// Of a figure that is 0 where all is well.
const from_zero = (before, unit = '', scale = 1) => most => ({
  pale: 0, solid: most, pale_text: '0', solid_text: seen(scale * most, unit),
  text: value => before + ' ' + readable(scale * value) + unit});
const kMaps = {
  max_over_mean: ['Expert load', 'rows of the fullest expert over those of the average one; a frame: a collapse',
    most => ({pale: 1, solid: most, pale_text: '1 (balanced)', solid_text: seen(most),
              text: value => 'fullest expert ' + readable(value) + ' x the average'})],
  // A router that is sure of its choice has little entropy: that is what is to be seen.
  entropy: ['Router entropy', "of a token's scores, in nats: dark is sure of one expert",
    (most, run) => {
      const pale = Math.max(most, run.experts > 0 ? Math.log(run.experts) : 0);
      return {pale, solid: 0, pale_text: readable(pale) + ' (all experts alike)', solid_text: '0 (one expert)',
              text: value => readable(value) + ' nats'};
    }],
  dead_experts: ['Dead experts', 'experts of a layer without a row in a step', from_zero('experts without a row:')],
  load_gini: ['Load, Gini', '0: all experts have as many rows; 1: one has all', from_zero('Gini')],
  load_cv: ['Load, coefficient of variation', "standard deviation of the experts' rows over their mean",
    from_zero('CV')],
  dropped_share: ['Dropped slots', "choices that the experts' capacity left without a row",
    from_zero('dropped', ' %', 100)],
};
function draw_maps(place) {
  const several = data.runs.length > 1;
  for (const run of data.runs)
    for (const [figure, [title, note, shades]] of Object.entries(kMaps)) {
      if (!run.maps[figure] || (several && figure !== 'max_over_mean')) continue;
      const layers = run.maps[figure].map(layer => layer.values);
      const most = Math.max(...layers.map(values => Math.max(...known(values), 0)));
      safely(() => draw_map(section(place, several ? title + ': ' + run.name : title, note), {
        layers, x: run.maps.step, last_x: run.last_step, x_label: 'step',
        frames: figure === 'max_over_mean' ? run.collapses : [], ...shades(most, run)}));
      if (figure === 'max_over_mean' && run.last_rows.length > 0) draw_experts(place, run);
    }
}
/// Of each expert in the last step: its rows over the average one's.
function draw_experts(place, run) {
  const experts = Math.max(...run.last_rows.map(layer => layer.values.length));
  const layers = run.last_rows.map(({values}) => {
    const sum = values.reduce((a, b) => a + b, 0);
    const load = e => sum > 0 && e < values.length ? values[e] * values.length / sum : null;
    return Array.from({length: experts}, (_, e) => load(e));
  });
  const most = Math.max(...layers.flatMap(known), 0);
  if (most === 0) return;
  safely(() => draw_map(section(place, 'Experts in the last step', 'rows of each over those of the average one'), {
    layers, x: layers[0].map((_, e) => e), last_x: experts - 1, x_label: 'expert', pale: 0, solid: most,
    pale_text: '0 (no row)', solid_text: readable(most) + ' (fullest)',
    text: value => readable(value) + " x the average expert's rows"}));
}

/// A bar a run. No more phases than colours: the shortest are one.
function draw_phases(place) {
  const kMost = 9, kOthers = 'all others';
  const names = [...new Set(data.runs.flatMap(run => Object.keys(run.phases)))];
  const sum = name => data.runs.reduce((all, run) => all + (run.phases[name] || 0), 0);
  names.sort((a, b) => sum(b) - sum(a));
  const others = names.length > kMost ? names.splice(kMost - 1) : [];
  const bars = data.runs.map(({name, phases}) => {
    const values = names.map(phase => 1e3 * (phases[phase] || 0));
    if (others.length > 0) values.push(1e3 * others.reduce((all, phase) => all + (phases[phase] || 0), 0));
    return {label: data.runs.length === 1 ? 'a step' : name, values};
  });
  draw_bars(place, {parts: others.length > 0 ? [...names, kOthers] : names, bars, stacked: true, text: milliseconds});
}
