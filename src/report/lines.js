// Lines over steps, drawn by dygraphs, and the switches for all of them.
const charts = [];

/// [x, least, value, largest] of each point, by x; a gap has NaN.
function points_of(line) {
  const {lines} = data.runs[line.run];
  const of = key => (lines[key] || lines[line.field]).map(value => value === null ? NaN : value);
  const values = of(line.field), least = of(line.field + '_least'), largest = of(line.field + '_largest');
  const points = values.map((value, i) => [lines[choice.axis][i], least[i], value, largest[i]]);
  return line.sparse ? points.filter(point => !Number.isNaN(point[2])) : points;
}
/// As TensorBoard: an exponential mean that starts at the first value. Gaps stay.
function smoothed(points, weight) {
  let mean = 0, sum = 0;
  return points.map(([x, , value]) => {
    if (Number.isNaN(value)) return [x, NaN, NaN, NaN];
    mean = weight * mean + (1 - weight) * value;
    sum = weight * sum + (1 - weight);
    return [x, mean / sum, mean / sum, mean / sum];
  });
}
/// The point next to x.
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? points[low - 1] : points[low];
}
/// Whether x is not beyond the ends of the points, but for the length of a step.
function covers(points, x) {
  const first = points[0][0], last = points[points.length - 1][0];
  const step = (last - first) / Math.max(1, points.length - 1);
  return first - step <= x && x <= last + step;
}
/// The place of a step on the axis that is chosen.
function place_of(run, step) {
  const {lines} = data.runs[run];
  return lines[choice.axis].at(lines.step.findIndex(other => other >= step));
}
const axis_text = x => choice.axis === 'hours' ? readable(x) + ' h' : choice.axis + ' ' + x.toLocaleString('en');

/// drawing: its label, from_zero, and lines of a name, a run, a field, and whether it is sparse.
class LineChart {
  constructor(place, drawing) {
    this.drawing = drawing;
    this.keys = place.appendChild(make('div', 'keys'));
    this.box = place.appendChild(make('div', 'lines'));
    this.box.setAttribute('role', 'img');
    this.box.setAttribute('aria-label', drawing.label);
    this.axis_name = place.appendChild(make('div', 'axis')).appendChild(make('span'));
    charts.push(this);
    this.draw();
  }
  draw() {
    const {drawing} = this;
    const several = data.runs.length > 1;
    this.axis_name.textContent = {step: 'step', tokens: 'tokens', hours: 'hours of steps'}[choice.axis];
    this.shown = [];  // of each line: its name, colour, and the points that are told
    const series = [];
    drawing.lines.forEach((line, i) => {
      if (choice.hidden.includes(line.run)) return;
      const shade = several ? line.run : i;
      const raw = points_of(line);
      const smooth = choice.smoothing > 0 && !line.sparse ? smoothed(raw, choice.smoothing) : null;
      this.shown.push({name: line.name, shade, run: line.run, points: smooth || raw, raw: smooth && raw});
      const dots = {drawPoints: line.sparse || raw.length === 1, pointSize: 2.5, strokePattern: line.sparse ? [4, 3] : null};
      const pen = smooth ? {color: faded(colour(shade), 0.3), strokeWidth: 1} : {color: colour(shade), strokeWidth: 1.6};
      series.push({points: raw, options: {...pen, ...dots}});
      if (smooth) series.push({points: smooth, options: {color: colour(shade), strokeWidth: 2}});
    });
    if (this.graph) this.graph.destroy();
    this.graph = null;
    this.box.textContent = '';
    this.tell();
    if (series.length === 0) return;
    const positive = series.some(one => one.points.some(point => point[2] > 0));
    const log = choice.log && positive;
    this.rows = joined(series.map(one => one.points));
    this.graph = new Dygraph(this.box, this.rows, {
      labels: ['x', ...series.map((_, i) => String(i))],
      series: Object.fromEntries(series.map((one, i) => [String(i), one.options])),
      customBars: true, connectSeparatedPoints: true, legend: 'never', logscale: log, fillAlpha: 0.32,
      includeZero: drawing.from_zero && !log, highlightCircleSize: 3.5, xRangePad: 4, yRangePad: 6,
      gridLineColor: theme('--rule'), axisLineColor: theme('--soft'), dateWindow: choice.zoom,
      axes: {
        x: {drawGrid: false, pixelsPerLabel: 70, axisLabelFormatter: x => readable(x, short)},
        y: {axisLabelWidth: 56, pixelsPerLabel: 34, axisLabelFormatter: y => readable(y, short)},
      },
      highlightCallback: (event, x) => charts.forEach(chart => chart.point_at(x, chart !== this)),
      unhighlightCallback: () => charts.forEach(chart => chart.leave(chart !== this)),
      zoomCallback: () => zoom(this.graph.isZoomed('x') ? this.graph.xAxisRange() : null, this),
      underlayCallback: (canvas, area, graph) => this.mark(canvas, area, graph),
    });
  }
  mark(canvas, area, graph) {
    canvas.font = '11px system-ui, sans-serif';
    data.runs.forEach((run, r) => run.restarts.forEach(mark => {
      if (!this.shown.some(line => line.run === r)) return;
      const x = graph.toDomXCoord(place_of(r, mark.step));
      if (!(x >= area.x && x <= area.x + area.w)) return;
      canvas.strokeStyle = canvas.fillStyle = data.runs.length > 1 ? colour(r) : theme('--warm');
      canvas.setLineDash([4, 3]);
      canvas.beginPath();
      canvas.moveTo(x, area.y);
      canvas.lineTo(x, area.y + area.h);
      canvas.stroke();
      canvas.setLineDash([]);
      canvas.fillText(mark.name, x + 3, area.y + 10);
    }));
  }
  point_at(x, by_another) {
    if (!this.graph) return;
    if (by_another) this.graph.setSelection(this.rows.indexOf(nearest(this.rows, x)));
    this.tell(x);
  }
  leave(by_another) {
    if (!this.graph) return;
    if (by_another) this.graph.clearSelection();
    this.tell();
  }
  /// The values at x, or the last ones.
  tell(x) {
    this.keys.replaceChildren(make('span', 'at', x === undefined ? 'last' : axis_text(x)));
    for (const line of this.shown) {
      const entry = key(line.name + ' ', line.shade);
      if (line.points.length > 0 && (x === undefined || covers(line.points, x))) {
        const at = points => x === undefined ? points[points.length - 1] : nearest(points, x);
        const [, low, value, high] = at(line.points);
        entry.append(make('b', '', readable(value)));
        if (line.raw) entry.append(' (' + readable(at(line.raw)[2]) + ')');
        else if (low < high) entry.append(' (' + readable(low) + ' to ' + readable(high) + ')');
      }
      this.keys.append(entry);
    }
    this.keys.append(make('span', 'unit', this.drawing.label));
    const mark = x !== undefined && data.runs.length === 1 &&
      data.runs[0].restarts.find(one => place_of(0, one.step) === x);
    if (mark) this.keys.append(make('span', '', mark.text));
  }
}
function faded(hex, alpha) {
  return hex + Math.round(255 * alpha).toString(16).padStart(2, '0');
}
/// Rows of dygraphs: every x once, null where a series has no point there.
function joined(series) {
  const rows = new Map();
  series.forEach((points, s) => points.forEach(([x, ...values]) => {
    if (!rows.has(x)) rows.set(x, [x, ...series.map(() => null)]);
    rows.get(x)[s + 1] = values;
  }));
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}
function zoom(window, source) {
  choice.zoom = window;
  for (const chart of charts) if (chart !== source && chart.graph) chart.graph.updateOptions({dateWindow: window});
}
function redraw_lines() {
  for (const chart of charts) chart.draw();
}

function add_controls() {
  const place = document.getElementById('controls');
  const control = (name, element) => {
    const label = place.appendChild(make('label', '', name));
    label.append(element);
    return element;
  };
  const smoothing = control('smoothing', make('input'));
  Object.assign(smoothing, {type: 'range', min: 0, max: 0.99, step: 0.01, value: choice.smoothing});
  const shown = smoothing.parentElement.appendChild(make('output', '', choice.smoothing));
  smoothing.addEventListener('input', () => {
    choice.smoothing = Number(shown.textContent = smoothing.value);
    redraw_lines();
  });
  const log = control('log scale', make('input'));
  Object.assign(log, {type: 'checkbox', checked: choice.log});
  log.addEventListener('change', () => { choice.log = log.checked; redraw_lines(); });
  const axis = control('over', make('select'));
  for (const [value, name] of [['step', 'steps'], ['tokens', 'tokens'], ['hours', 'hours of steps']])
    axis.append(Object.assign(make('option', '', name), {value, selected: value === choice.axis}));
  axis.addEventListener('change', () => {
    choice.axis = axis.value;
    choice.zoom = null;
    redraw_lines();
  });
  const back = place.appendChild(make('button', '', 'whole range'));
  back.title = 'Drag in a chart to zoom, with shift to move; a double click leads back, too.';
  back.addEventListener('click', () => { choice.zoom = null; redraw_lines(); });
  if (data.runs.length < 2) return;
  data.runs.forEach((run, r) => {
    const button = place.appendChild(make('button'));
    button.append(key(run.name, r));
    button.setAttribute('aria-pressed', String(!choice.hidden.includes(r)));
    button.addEventListener('click', () => {
      choice.hidden = choice.hidden.includes(r) ? choice.hidden.filter(one => one !== r) : [...choice.hidden, r];
      button.setAttribute('aria-pressed', String(!choice.hidden.includes(r)));
      redraw_lines();
    });
  });
}
